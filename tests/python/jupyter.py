"""Records the outputs that a kernel of Jupyter gives for the cells of a file, in their order, with their media types.

A test of the sandbox runs the same cells in a session and compares. `make jupyter` runs this program; a cell is added to
the file with its source only.
"""

import importlib.metadata
import json
import sys

import nbclient
import nbformat

PACKAGES = ["ipykernel", "ipython", "matplotlib", "numpy", "pandas", "pillow", "plotly", "sympy"]


def outputs(cell):
    for output in cell.outputs:
        if output.output_type == "error":
            yield {"error": output.ename}
        elif output.output_type in ("display_data", "execute_result"):
            yield {"is_value": output.output_type == "execute_result", "types": sorted(output.data)}


def record(cells):
    """Runs the cells of one package set in one kernel."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("\n".join(cell["source"])) for cell in cells])
    nbclient.NotebookClient(notebook, kernel_name="python3", allow_errors=True).execute()
    for cell, ran in zip(cells, notebook.cells):
        cell["outputs"] = list(outputs(ran))


def main(path):
    with open(path, encoding="utf-8") as file:
        recorded = json.load(file)
    for name in sorted({cell["set"] for cell in recorded["cells"]}):
        record([cell for cell in recorded["cells"] if cell["set"] == name])
    recorded["versions"] = {name: importlib.metadata.version(name) for name in PACKAGES}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(recorded, file, indent=1)
        file.write("\n")


main(sys.argv[1])
