"""docs/house.svg shows the folders, the imports and the ways as they are."""

from documents import ROOT, docs_script, read

house = docs_script("house")
GUIDE = read("CONTRIBUTING.md")


def test_the_picture_is_that_of_the_code():
    """Otherwise draw it again: python docs/house.py > docs/house.svg."""
    assert read("docs/house.svg") == house.picture()


def test_each_folder_has_a_row_and_a_purpose():
    folders = {path.parent.name for path in (ROOT / "bert_tf").glob("*/__init__.py")}
    assert len(folders) > 10
    assert {*house.rows()} == folders | {"data_gen", house.GROUND, house.SCRIPTS}
    assert house.purposes(GUIDE).keys() >= {*house.rows()}


def test_a_stop_of_a_way_is_the_folder_of_its_function():
    guide = """
## Four paths

### A label

1. `run_classifier.py:main`, `read_data`; `bert_tf/tasks/task.py:Task.read`,
    `bert_tf/tasks/examples.py:Layout`: two files of one folder
    `bert_tf/tables/rows.py:open_table`: a line goes on
2. `data_gen/masking.py:mask`: another

## More
"""
    (way,) = house.ways(guide)
    assert way.title == "A label"
    stops = [(1, house.SCRIPTS), (1, "tasks"), (1, "tables"), (2, "data_gen")]
    assert way.stops == stops


def test_imports_are_those_of_the_files():
    imports = house.imports_of_rows()
    assert imports["tables"] == []
    assert "tasks" in imports[house.SCRIPTS]
    assert "training" in imports["tasks"]
    assert "serving" not in imports["tasks"]
