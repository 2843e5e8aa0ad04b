"""The book as files: its contents, its links, its notation, and where its buttons lead."""

import itertools
import re
from email.message import Message
from importlib import metadata

import pytest
import yaml
from bs4 import BeautifulSoup
from built_site import SITE, broken_links, path_prefix, soup

import ntpnb
from ntpnb_book.claims import statements
from ntpnb_book.output import ROOT
from publishing import project
from publishing.address import find_repository, pages_url
from publishing.project import chapters, names
from publishing.sphinx_ext import foot, on_paper

GITHUB = "https://github.com/owner/name"


def contents():
    """Pages that the table of contents lists: those of the first level, and those below each."""
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    listed = [page for part in toc["parts"] for page in part["chapters"]]
    first = [toc["root"], *(page["file"] for page in listed)]
    below = {page["file"]: [part["file"] for part in page.get("sections", ())] for page in listed}
    return first, below


def all_pages():
    """Every page of the table of contents."""
    first, below = contents()
    return first + [page for pages in below.values() for page in pages]


@pytest.fixture(scope="module")
def site():
    if not (SITE / "index.html").exists():
        pytest.fail("there is no built book in _build/html; run `make book` first")
    return SITE


def test_every_notebook_is_in_the_contents():
    assert [page for page in all_pages() if page.startswith("nb/")] == [f"nb/{n}" for n in names()]


def test_the_sidebar_is_short_and_evidence_lies_below_its_chapter():
    first, below = contents()
    assert len(first) <= 45
    assert [page for page in first if project.EVIDENCE in page] == []
    for chapter, pages in below.items():
        for page in pages:
            if page.startswith("nb/"):
                text = project.source(project.of_page(page)).read_text("utf-8")
                assert f"{{evidence-for}} {project.of_page(chapter)}" in text


def test_next_leads_from_chapter_to_chapter(site):
    first, below = contents()
    for page, after in itertools.pairwise(first[1:]):
        assert next_page(site, page) == after
    for pages in below.values():
        for page, after in itertools.pairwise(pages):
            assert next_page(site, page) == after


def next_page(site, page):
    """The page, as the table of contents names it, that Next leads to from another one."""
    path = site / f"{page}.html"
    address = soup(path).select_one("a.right-next")["href"]
    return (path.parent / address).resolve().relative_to(site).with_suffix("").as_posix()


def test_no_link_is_broken(site):
    assert broken_links(site, path_prefix(site)) == []


def empty_references(page):
    """List the links of a parsed page that name a block without its number, such as "Lemma "."""
    links = page.select("a.reference.internal")
    return [link["href"] for link in links if re.fullmatch(r"\w*\s+", link.text)]


def test_no_page_refers_to_a_block_without_its_number(site):
    found = {str(path): empty_references(soup(path)) for path in site.rglob("*.html")}
    assert {path: links for path, links in found.items() if links} == {}


@pytest.mark.parametrize(
    ("words", "empty"),
    [("Lemma ", True), ("Lemma 2", False), ("the lemma", False), ("", False)],
)
def test_a_reference_without_a_number_is_found(words, empty):
    page = BeautifulSoup(f'<a class="reference internal" href="#x">{words}</a>', "html.parser")
    assert (empty_references(page) == ["#x"]) is empty


def bare_references(texts):
    """List the labels of blocks without a number to which a text refers by that number."""
    blocks = re.findall(r"^:{3,}\{prf:\w+\}.*\n((?::[\w-]+:.*\n)*)", "\n".join(texts), re.MULTILINE)
    silent = {
        label
        for block in blocks
        if ":nonumber:" in block
        for label in re.findall(r":label: (\S+)", block)
    }
    referred = re.findall(r"\{prf:ref\}`([^`<]+)`", "\n".join(texts))
    return [label for label in referred if label in silent]


def test_no_text_refers_by_number_to_a_block_that_has_none():
    pages = [*ROOT.glob("book/*.md"), *ROOT.glob("notebooks/**/*.md")]
    assert bare_references([page.read_text(encoding="utf-8") for page in pages]) == []


def test_a_reference_by_number_is_told_apart():
    block = ":::{prf:lemma} Sums\n:label: sums\n:nonumber:\n\n"
    assert bare_references([block, "By {prf:ref}`sums`."]) == ["sums"]
    assert bare_references([block, "By {prf:ref}`the lemma <sums>`."]) == []
    assert bare_references([block.replace(":nonumber:\n", ""), "By {prf:ref}`sums`."]) == []


def test_no_page_names_a_folder_or_an_object_of_this_machine(site):
    """A signature showed the default of an argument that is a folder."""
    local = re.compile(
        rf"{re.escape(str(ROOT))}/|(Posix|Windows)Path\(|&lt;function| at 0x[0-9a-f]{{6}}"
    )
    found = {
        str(page.relative_to(site)): match[0]
        for page in site.rglob("*.html")
        if (match := local.search(page.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_beside_each_figure_stand_its_data_its_files_and_its_code(site):
    for name in names():
        page = soup(site / f"nb/{name}.html")
        captions = [c for c in page.select("figcaption") if c.select('a[href$=".svg"]')]
        assert captions or name not in chapters()
        for caption in captions:
            links = [link["href"].rsplit("/")[-1] for link in caption.select("a.download")]
            figure = next(link for link in links if link.endswith(".svg")).removesuffix(".svg")
            # Data and PDF are offered where `make figures` made them.
            kinds = [f"{figure}{end}" for end in (".csv", ".svg", ".pdf")]
            files = [file for file in kinds if (ROOT / "figures" / file).exists()]
            [code] = caption.select("a.to-code")
            assert page.select_one(f"details.fold {code['href']}, {code['href']}")
            moves = caption.parent.select(".frames") != []
            assert links == files + [f"{figure}_frames.svg"] * moves


def test_each_quoted_statement_and_its_row_of_the_index_lead_to_each_other(site):
    def links(tag):
        return {link["href"].rpartition("/")[2] for link in tag.select("a[href]")}

    index = soup(site / "statements.html")
    known, quoted = {id.replace(".", "-") for id in statements()}, set()
    for name in names():
        page = soup(site / f"nb/{name}.html")
        for block in page.select("div.proof[id]"):
            label = block["id"]
            if label not in known:
                continue
            quoted.add(label)
            assert f"statements.html#index-{label}" in links(block)
            assert f"{name.split('/')[-1]}.html#{label}" in links(
                index.select_one(f"#index-{label}").parent
            )
    assert len(quoted) > 20


def test_the_foot_of_every_page_names_the_version_and_what_changed(site):
    for page in all_pages():
        shown = soup(site / f"{page}.html").select_one(".extra_footer")
        assert f"Version {ntpnb.__version__}." in shown.text, page
        target = "#" if page == "changelog" else "changelog.html"
        assert shown.a["href"].endswith(target), page


def test_the_foot_says_where_to_report_an_error_once_that_is_known():
    def pathto(name, resource=0):
        return name if resource else f"{name}.html"

    context = {"pathto": pathto, "theme_extra_footer": "Licence."}
    known = dict(context)
    foot(None, context)
    assert "Report" not in context["theme_extra_footer"]
    assert "PDF" not in context["theme_extra_footer"]  # nobody has made one
    foot(GITHUB, known)
    assert f'<a href="{GITHUB}/issues">Report an error</a>' in known["theme_extra_footer"]
    assert '<a href="downloads/ntpnb.pdf">The book as a PDF</a>' in known["theme_extra_footer"]


@pytest.mark.parametrize(
    ("link", "sound"),
    [
        ('<a href="page.html#here">', True),
        ('<a href="#here">', True),
        ('<a href="https://example.org/elsewhere#there">', True),
        ('<a href="page.html#there">', False),
        ('<a href="#there">', False),
        ('<a href="missing.html">', False),
        ('<img src="missing.png" alt="A figure">', False),
        ('<script src="missing.js">', False),
        ('<a href="/name/page.html#here">', True),
        ('<a href="/name/">', True),
        ('<a href="/page.html">', False),
        ('<a href="/name/missing.html">', False),
    ],
)
def test_a_broken_link_is_found(link, sound, tmp_path):
    (tmp_path / "page.html").write_text(f"<h1 id='here'>A page</h1>{link}", encoding="utf-8")
    assert (broken_links(tmp_path, "/name/") == []) is sound


@pytest.mark.parametrize(
    ("head", "prefix"),
    [
        ("", "/"),
        ('<link rel="canonical" href="https://owner.github.io/name/index.html">', "/name/"),
        ('<link rel="canonical" href="https://book.example.org/index.html">', "/"),
    ],
)
def test_the_site_says_below_which_path_it_is_published(head, prefix, tmp_path):
    (tmp_path / "index.html").write_text(f"<head>{head}</head>", encoding="utf-8")
    assert path_prefix(tmp_path) == prefix


def test_the_python_names_of_the_notation_exist():
    data = ntpnb.datasets.toy()
    fin, svm = ntpnb.finite_part(data), ntpnb.max_margin(data)
    run = ntpnb.descend(data, ntpnb.GD(step=0.5), steps=2)
    known = vars(ntpnb) | {
        "ntpnb": ntpnb,
        "data": data,
        "order": ntpnb.token_priority(data),
        "F": ntpnb.equal_subspace(data),
        "fin": fin,
        "svm": svm,
        "run": run,
        "found": ntpnb.report(data),
        "compared": run.compare(fin, svm),
        "W": svm.W,
        "j": 0,
        "v": 0,
    }
    text = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 6]
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row[5])]
    assert len(listed) > 30
    for name in listed:
        expression = name.replace("…", "1")
        eval(f"compared{expression}" if name.startswith(".") else expression, known)


@pytest.mark.parametrize(
    ("environ", "declared", "expected"),
    [
        ({"GITHUB_REPOSITORY": "owner/name"}, ["Source, https://github.com/a/b"], GITHUB),
        ({}, [f"Issues, {GITHUB}/issues", f"Source, {GITHUB}"], GITHUB),
        ({}, ["Source, https://gitlab.com/owner/name"], "https://gitlab.com/owner/name"),
        ({}, ["Source, https://example.org/owner/name"], None),
        ({}, [], None),
    ],
)
def test_repository_address(environ, declared, expected, monkeypatch, tmp_path):
    known = Message()
    for line in declared:
        known["Project-URL"] = line
    monkeypatch.setattr(metadata, "metadata", lambda name: known)
    assert find_repository(tmp_path, environ) == expected


def test_a_project_does_not_take_the_address_of_the_workflow_that_only_builds_it(tmp_path):
    surrounding = tmp_path / "surrounding"
    workflow = {"GITHUB_REPOSITORY": "another/project", "GITHUB_WORKSPACE": str(surrounding)}
    assert find_repository(surrounding / "ntpnb-main", workflow) is None
    assert find_repository(surrounding, workflow) == "https://github.com/another/project"


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        (GITHUB, "https://owner.github.io/name/"),
        ("https://github.com/Owner/Name", "https://owner.github.io/Name/"),
        ("https://gitlab.com/group/name", "https://group.gitlab.io/name/"),
    ],
)
def test_address_of_the_pages(repository, expected):
    assert pages_url(repository) == expected


def test_on_paper_code_has_few_colours():
    body = """<p><a href="downloads/figures.zip">all figures</a></p>
<pre><span class="k">def</span> <span class="nf">f</span><span class="p">():</span>
<span class="c1"># why</span></pre><span class="pre">x</span>"""
    page = BeautifulSoup(on_paper(body), "html.parser")
    assert page.p.decode_contents() == "all figures"
    assert page.pre.text == "def f():\n# why"
    assert [span.text for span in page.select("span")] == ["# why", "x"]


def test_each_term_is_defined_once_and_in_sentences():
    text = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
    glossaries = re.findall(r"^:::\{glossary\}\n(.*?)^:::$", text, re.MULTILINE | re.DOTALL)
    entries = [entry for part in glossaries for entry in part.strip().split("\n\n")]
    terms = [entry.splitlines()[0] for entry in entries]
    assert len(terms) > 30
    assert len(set(terms)) == len(terms)
    assert [term for term in terms if term != term.strip() or term[0].isupper()] == []
    assert [entry for entry in entries if not entry.rstrip("*").endswith(".")] == []
    named = {re.sub(r".*<(.*)>", r"\1", name) for name in re.findall(r"\{term\}`([^`]+)`", text)}
    assert named <= set(terms)
