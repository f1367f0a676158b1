"""The documentation site: ``sphinx-build -W -b html docs SITE``."""

import gc
import sys
import tomllib
from pathlib import Path

# Trees of pages stay until the end: the garbage collector need not look through them all the time.
gc.set_threshold(200_000, 20, 50)

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

_project = tomllib.loads(HERE.parent.joinpath("pyproject.toml").read_text())["project"]

project = _project["name"]
author = _project["authors"][0]["name"]
version = release = _project["version"]
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "site_pages"]
exclude_patterns = ["_build", "_ext", "figures/*.py"]
nitpicky = False

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 3
# A block without a language is a session or a formula; neither has a grammar.
highlight_language = "none"

# Types stand in the docstrings, with shapes, units and ranges.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
# Types are words with shapes, such as (rows, d_n): no links are made of their parts.
napoleon_use_param = False
default_role = "name"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"{project} {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["sort.js"]  # tables
html_copy_source = False
html_show_sourcelink = False
# The site asks nobody's server for anything: fonts are the reader's own, and nothing is tracked.
html_theme_options = {"navigation_with_keys": True}
