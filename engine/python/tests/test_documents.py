"""The README runs, the stubs name what there is, and the speed is that of the bars."""

import ast
import os
import pathlib
import random
import re
import time

import wattle

HERE = pathlib.Path(__file__).parent.parent


def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_stubs_name_what_there_is():
    stub = pathlib.Path(wattle.__file__).with_name("__init__.pyi")
    body = ast.parse(stub.read_text()).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    assert functions | set(classes) == set(wattle.__all__)
    for name, node in classes.items():
        if name.endswith(("Error", "Conflict", "KeyExists")):
            continue
        written = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        there = {item for item in vars(getattr(wattle, name))}
        public = {item for item in there if not item.startswith("__")}
        assert public <= written and written <= there, name


def test_look_ups_are_fast(tmp_path):
    with wattle.open(tmp_path / "store", pool="128MiB") as engine:
        tree = engine.tree("tree")
        tree.bulk_load((b"user%08d" % i, b"v" * 100) for i in range(100_000))
        keys = [b"user%08d" % random.randrange(100_000) for _ in range(200_000)]
        single = many = 0
        for _ in range(3):
            started = time.perf_counter()
            for key in keys:
                tree[key]
            single = max(single, len(keys) / (time.perf_counter() - started))
            started = time.perf_counter()
            for start in range(0, len(keys), 1000):
                tree.get_many(keys[start : start + 1000])
            many = max(many, len(keys) / (time.perf_counter() - started))
        print(f"\nget {single:,.0f}/s, get_many {many:,.0f}/s")
        # WATTLE_SPEED_SHARE lowers the bars for a slower machine.
        share = float(os.environ.get("WATTLE_SPEED_SHARE", "1"))
        assert single > 300_000 * share and many > 1_000_000 * share
