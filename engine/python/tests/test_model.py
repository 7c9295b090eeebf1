"""A store against a dictionary, by hypothesis: transactions, savepoints, ranges, reopening."""

import shutil
import tempfile

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import wattle

keys = st.binary(max_size=3)
values = st.binary(max_size=40) | st.integers(0, 6000).map(lambda size: b"v" * size)


class Store(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.path = tempfile.mkdtemp()
        self.committed, self.model, self.saved = {}, {}, []
        self.txn = None
        self.open()

    def open(self):
        self.engine = wattle.open(self.path, pool="2MiB", log="2MiB", durability="none")
        self.tree = self.engine.tree("tree")

    @property
    def view(self):
        return self.tree if self.txn is None else self.txn[self.tree]

    def changed(self):
        if self.txn is None:
            self.committed = dict(self.model)

    @rule(key=keys, value=values)
    def put(self, key, value):
        self.view[key] = value
        self.model[key] = value
        self.changed()

    @rule(key=keys, value=values)
    def insert(self, key, value):
        try:
            self.view.insert(key, value)
            assert key not in self.model
            self.model[key] = value
        except wattle.KeyExists:
            assert key in self.model
        self.changed()

    @rule(key=keys)
    def pop(self, key):
        assert self.view.pop(key, None) == self.model.pop(key, None)
        self.changed()

    @rule(records=st.dictionaries(keys, values, max_size=20))
    def update(self, records):
        self.view.update(records)
        self.model.update(records)
        self.changed()

    @rule(keys=st.lists(keys, max_size=40))
    def get_many(self, keys):
        assert self.view.get_many(keys) == [self.model.get(key) for key in keys]

    @rule(low=st.none() | keys, high=st.none() | keys, reverse=st.booleans())
    def range(self, low, high, reverse):
        found = list(self.view.range(low, high, reverse=reverse))
        within = [
            (key, value)
            for key, value in sorted(self.model.items(), reverse=reverse)
            if (low is None or low <= key) and (high is None or key < high)
        ]
        assert found == within

    @rule(prefix=st.binary(max_size=2))
    def prefix(self, prefix):
        found = list(self.view.prefix(prefix))
        assert found == [item for item in sorted(self.model.items()) if item[0].startswith(prefix)]

    @precondition(lambda self: self.txn is None)
    @rule()
    def begin(self):
        self.txn, self.saved = self.engine.begin(), []

    @precondition(lambda self: self.txn is not None)
    @rule()
    def savepoint(self):
        assert self.txn.savepoint() == len(self.saved)
        self.saved.append(dict(self.model))

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def rollback_to(self, data):
        number = data.draw(st.integers(0, len(self.saved) - 1))
        self.txn.rollback_to(number)
        self.model = dict(self.saved[number])
        del self.saved[number + 1 :]

    @precondition(lambda self: self.txn is not None)
    @rule(commit=st.booleans())
    def end(self, commit):
        if commit:
            self.txn.commit()
            self.committed = dict(self.model)
        else:
            self.txn.abort()
            self.model = dict(self.committed)
        self.txn, self.saved = None, []

    @precondition(lambda self: self.txn is None)
    @rule()
    def reopen(self):
        self.engine.close()
        self.open()

    @invariant()
    def the_tree_is_the_model(self):
        assert dict(self.view.items()) == self.model
        assert dict(self.tree.items()) == self.committed

    def teardown(self):
        if self.txn is not None:
            self.txn.abort()
        assert self.engine.verify() == []
        self.engine.close()
        shutil.rmtree(self.path)


TestStore = Store.TestCase
TestStore.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, database=None
)
