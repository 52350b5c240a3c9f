"""The documentation as a site: `sphinx-build -W -c docs/site docs FOLDER`; FOLDER/index.html is its start.

A dead link ends the build, and so does a page that asks another machine for anything. Diagrams are drawn here.
"""

import hashlib
import re
from html import escape
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

import mermaidx
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

DOCS: Final = Path(__file__).parents[1]
OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:src|tests|jobs|benchmarks|(?:\.\./)?README\.md)[^)]*\)")
"""A link to a file that the repository has and the site has not."""

PICTURE: Final = re.compile(r'<picture>.*?<img alt="([^"]*)" src="([^"]*)">.*?</picture>', re.DOTALL)
"""A picture with a second version for dark pages: Sphinx copies only those of Markdown."""

README_LINK: Final = re.compile(r" The \[README\]\([^)]*\)[^.]*\.")
"""A sentence that the start page does not need, since it begins with what the README says of the installation."""

FETCHED: Final = re.compile(r'(?:\bsrc|<link(?! rel="(?:canonical|author)")[^>]*\bhref)="([^"#?]+)')
SCRIPT: Final = re.compile(r"<script[^>]*>(?:(?!</script>).)*https?://[^\s\"']+", re.DOTALL)
"""What a browser fetches with a page, and a script that names an address."""

DIAGRAM_SCALE: Final = 0.75

FUNCTION: Final = re.compile(r"<function (?:[^<>]|<\w+>)*>")

project = "batchkiln"
release = installed_version(project)
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_fence_as_directive = ["mermaid"]
root_doc = "site/index"
exclude_patterns = ["README.md", "man", "compose"]
html_theme = "furo"
html_extra_path = ["start"]  # index.html at the root of the site, which leads to the start page
html_title = f"batchkiln {release}"
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["diagrams.css"]
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"


def prepared(_: Sphinx, name: str, source: list[str]) -> None:
    """Fill the pages of this folder, and keep only the text of links to files that the site has not."""
    text = source[0]
    if name == root_doc:
        text += start_page() + contents()
    elif name in {"site/contributing", "site/security"}:
        page = (DOCS.parent / f"{Path(name).name.upper()}.md").read_text("utf-8")
        text = (
            page.replace("](docs/", "](../")
            .replace("](CHANGELOG.md", "](../../README.md")
            .replace("](tests/", "](../tests/")
        )
    text = PICTURE.sub(r"![\1](\2)", OUTSIDE.sub(r"\1", text))
    source[0] = re.sub(
        r"\]\((?:\.\./)*(CONTRIBUTING|SECURITY)\.md", lambda found: f"](/site/{found[1].lower()}.md", text
    )


def start_page() -> str:
    """Return what the README says of the installation, and docs/README.md with links that hold from this folder."""
    install = (DOCS.parent / "README.md").read_text("utf-8").split("\n\n")[2:4]
    _, pages = (DOCS / "README.md").read_text("utf-8").split("\n", 1)
    lines = [part.replace(" && ", " &&\n  ") for part in install]  # the page is narrower than the README
    return "\n\n".join(["", *lines, re.sub(r"\]\((?!\.\.)", "](/", README_LINK.sub("", pages))])


def contents() -> str:
    """Return the pages in the order of docs/README.md, under its headings, and the guides in the order of theirs."""
    parts = []
    for section in (DOCS / "README.md").read_text("utf-8").split("\n## ")[1:]:
        pages = re.findall(r"\[[^\]]+\]\(([^)#]+)\.md\)", section)
        names = [f"/site/{Path(page).name.lower()}" if page.startswith("..") else f"/{page}" for page in pages]
        names = [name for name in names if not name.startswith("/guides/") or name == "/guides/README"]
        if "/python" in names:
            names.insert(names.index("/python") + 1, "/site/python-reference")
        parts.append(toctree(section.splitlines()[0], names))
    guides = re.findall(r"\]\(([^)/#]+)\.md\)", (DOCS / "guides" / "README.md").read_text("utf-8"))
    parts.insert(1, toctree("Guides", [f"/guides/{guide}" for guide in dict.fromkeys(guides)]))
    return "\n".join(parts)


def toctree(caption: str, names: list[str]) -> str:
    """Return a table of contents."""
    listed = "\n".join(names)
    return f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n{listed}\n```\n"


def signature_without_functions(  # noqa: PLR0917  as Sphinx calls it
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write "…" for a default that is a function, whose `repr` says nothing."""
    del app, what, name, obj, options
    return None if signature is None else FUNCTION.sub("…", signature), returned


class Diagram(SphinxDirective):
    """A diagram in Mermaid's language as a picture, which leads to the same one in full size."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draw the diagram into the site's pictures."""
        assert isinstance(self.content, StringList)
        svg = mermaidx.render("\n".join(self.content), theme="neutral").svg()
        file = f"diagram-{hashlib.sha256(svg.encode()).hexdigest()[:16]}.svg"
        folder = Path(self.env.app.outdir) / "_images"
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(svg, "utf-8")
        width = float(svg.partition('viewBox="')[2].split()[2]) * DIAGRAM_SCALE
        place = "../" * self.env.docname.count("/") + f"_images/{file}"
        told = escape(" ".join(self.content[0].split()))
        image = f'<img alt="A diagram ({told})" src="{place}" width="{width:.0f}">'
        return [nodes.raw("", f'<p class="diagram"><a href="{place}">{image}</a></p>', format="html")]


def check_pages(app: Sphinx, error: Exception | None) -> None:
    """Raise ExtensionError for a page with a picture or a file that is not in the site."""
    folder = Path(app.outdir)
    for page in () if error is not None else sorted(folder.rglob("*.html")):
        text = page.read_text("utf-8")
        wrong = [place for place in FETCHED.findall(text) if "//" in place or not (page.parent / place).is_file()]
        wrong += [found[:200] for found in SCRIPT.findall(text)]
        if wrong:
            raise ExtensionError(f"{page.relative_to(folder)} fetches what is not in the site: {', '.join(wrong)}")


def setup(app: Sphinx) -> None:
    """Connect the preparation of pages and signatures, the drawing of diagrams, and the check of the pages."""
    app.add_directive("mermaid", Diagram)
    app.connect("build-finished", check_pages)
    app.connect("source-read", prepared)
    app.connect("autodoc-process-signature", signature_without_functions)
