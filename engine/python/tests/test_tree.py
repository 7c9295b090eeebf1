"""Trees, transactions and ranges, against what a dictionary would do."""

import array
import threading
import time

import pytest

import wattle


@pytest.fixture
def engine(tmp_path):
    with wattle.open(tmp_path / "store", pool="8MiB", durability="none") as engine:
        yield engine


@pytest.fixture
def tree(engine):
    return engine.tree("tree")


def test_a_tree_is_a_dictionary(tree):
    assert not tree and len(tree) == 0
    tree[b"b"] = b"2"
    tree[b"a"] = b"1"
    assert tree and len(tree) == 2
    assert list(tree) == list(tree.keys()) == [b"a", b"b"]
    assert dict(tree.items()) == {b"a": b"1", b"b": b"2"}
    assert list(tree.values()) == [b"1", b"2"]
    assert tree.setdefault(b"a", b"x") == b"1" and tree.setdefault(b"c", b"3") == b"3"
    assert tree.pop(b"c") == b"3" and tree.pop(b"c", None) is None
    with pytest.raises(KeyError):
        tree.pop(b"c")
    with pytest.raises(ValueError):
        tree.pop(b"a", 1, 2)
    assert tree[b"a"] == b"1"
    with pytest.raises(KeyError):
        tree[b"c"]
    with pytest.raises(KeyError):
        del tree[b"c"]
    with pytest.raises(wattle.KeyExists):
        tree.insert(b"a", b"again")
    assert tree.get(b"c") is None and tree.get(b"c", b"d") == b"d"


def test_buffers_are_keys_and_values(tree):
    tree[bytearray(b"key")] = memoryview(b"a long value")[2:6]
    assert tree[memoryview(b"key")] == b"long"
    tree[b"array"] = array.array("B", [1, 2, 3])
    assert tree[b"array"] == b"\x01\x02\x03"
    big = bytes(3_000_000)
    tree[b"big"] = big
    assert tree[b"big"] == big


def test_wrong_types_are_type_errors(tree):
    for wrong in ("text", 1, None, array.array("d", [1.0])):
        with pytest.raises(TypeError):
            tree[wrong] = b"value"
        with pytest.raises(TypeError):
            tree[b"key"] = wrong
        with pytest.raises(TypeError):
            tree.get_many([b"key", wrong])
    with pytest.raises((TypeError, ValueError)):
        tree.update([(b"a", b"b", b"c")])
    with pytest.raises(ValueError, match="1024"):
        tree[bytes(2000)] = b""
    assert len(tree) == 0


def test_options_are_checked(tmp_path):
    with pytest.raises(ValueError, match="sync, group, none"):
        wattle.open(tmp_path / "s", durability="soon")
    with pytest.raises(ValueError, match="size"):
        wattle.open(tmp_path / "s", pool="a lot")
    with pytest.raises(ValueError):
        wattle.open(tmp_path / "s", pool=4096)
    with pytest.raises(wattle.Error):
        wattle.open(tmp_path / "s", create=False)


def test_ranges(tree):
    tree.bulk_load((b"%05d" % i, b"v%d" % i) for i in range(5000))
    assert len(tree) == 5000
    assert next(tree.range(b"01000"))[0] == b"01000"
    assert [key for key, _ in tree.range(b"00010", b"00013")] == [b"00010", b"00011", b"00012"]
    assert next(tree.range(None, b"01000", reverse=True)) == (b"00999", b"v999")
    assert len(list(tree.prefix(b"012"))) == 100
    assert [key for key, _ in tree.prefix(b"0120", reverse=True)][0] == b"01209"
    found = tree.get_many(b"%05d" % i for i in range(0, 10_000, 7))
    assert found == [b"v%d" % i if i < 5000 else None for i in range(0, 10_000, 7)]
    with pytest.raises(ValueError, match="ascending"):
        tree.bulk_load([(b"b", b""), (b"a", b"")])
    with pytest.raises(wattle.Error, match="empty"):
        tree.bulk_load([(b"a", b"")])


def test_a_range_keeps_its_snapshot(tree):
    tree.update({b"%04d" % i: b"old" for i in range(2000)})
    items = tree.items()
    assert next(items) == (b"0000", b"old")
    tree.update({b"%04d" % i: b"new" for i in range(2000)})
    assert {value for _, value in items} == {b"old"}
    assert set(tree.values()) == {b"new"}


def test_a_block_commits_or_rolls_back(engine, tree):
    with engine.begin() as txn:
        txn[tree][b"kept"] = b"1"
        savepoint = txn.savepoint()
        txn[tree][b"undone"] = b"2"
        txn.rollback_to(savepoint)
        assert list(txn[tree]) == [b"kept"] and list(tree) == []
    with pytest.raises(RuntimeError, match="on purpose"):
        with engine.begin() as txn:
            txn[tree][b"lost"] = b"3"
            raise RuntimeError("on purpose")
    assert list(tree) == [b"kept"]
    with pytest.raises(wattle.ClosedError):
        txn.commit()
    with pytest.raises(wattle.ClosedError):
        txn[tree][b"late"] = b""
    with pytest.raises(ValueError, match="savepoint 7"):
        with engine.begin() as txn:
            txn.rollback_to(7)
    with engine.begin(read_only=True) as txn:
        with pytest.raises(wattle.ReadOnlyError):
            txn[tree][b"key"] = b""


def test_conflicts_run_again(engine, tree):
    first, second = engine.begin(), engine.begin()
    first[tree][b"key"] = b"1"
    with pytest.raises(wattle.Conflict):
        second[tree][b"key"] = b"2"
    second.abort()
    first.commit()
    tree[b"hits"] = b"0"

    def count():
        def work(txn):
            txn[tree][b"hits"] = b"%d" % (int(txn[tree][b"hits"]) + 1)

        for _ in range(100):
            wattle.transact(engine, work, attempts=1000)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tree[b"hits"] == b"400"


def test_the_gil_is_free_while_a_call_waits(tmp_path):
    with wattle.open(tmp_path / "s", pool="8MiB") as engine:
        tree = engine.tree("tree")
        txn = engine.begin()
        txn[tree][b"key"] = b"locked"
        ticks = []

        def tick():
            for _ in range(200):
                ticks.append(time.perf_counter())
                time.sleep(0.0001)

        ticker = threading.Thread(target=tick)
        ticker.start()
        while not ticks:
            time.sleep(0.0001)
        started = time.perf_counter()
        with pytest.raises(wattle.Conflict):
            tree[b"key"] = b"waits 10 ms for the transaction"
        ended = time.perf_counter()
        ticker.join()
        assert ended - started > 0.005
        assert len([tick for tick in ticks if started < tick < ended]) > 3
        txn.abort()


def test_a_closed_engine_is_an_error(tmp_path):
    engine = wattle.open(tmp_path / "store", pool="8MiB")
    tree = engine.tree("tree")
    tree[b"key"] = b"value"
    txn = engine.begin()
    with pytest.raises(wattle.Error, match="1 transaction"):
        engine.close()
    assert tree[b"key"] == b"value"
    txn.abort()
    engine.close()
    engine.close()
    for call in (engine.sync, engine.trees, engine.begin, tree.keys, lambda: tree[b"key"]):
        with pytest.raises(wattle.ClosedError):
            call()


def test_maintenance(tmp_path):
    with wattle.open(tmp_path / "store", pool="8MiB", log="4MiB") as engine:
        tree = engine.tree("tree")
        tree.update({b"%d" % i: b"value" for i in range(100)})
        engine.sync()
        engine.checkpoint()
        engine.backup(tmp_path / "copy")
        engine.compact()
        assert engine.verify() == [] and engine.trees() == ["tree"]
        assert engine.stats()["commits"] >= 1
        engine.tree("other")
        engine.drop_tree("other")
        with pytest.raises(wattle.Error, match="other"):
            engine.drop_tree("other")
        with pytest.raises(wattle.Error):
            wattle.open(tmp_path / "store")
    with wattle.open(tmp_path / "copy", read_only=True) as copy:
        assert len(copy.tree("tree")) == 100
        with pytest.raises(wattle.ReadOnlyError):
            copy.tree("tree")[b"k"] = b"v"
