"""The checks of pages: each finds its fault, and a sound page has none."""

from __future__ import annotations

import pytest

from support.html_pages import nesting_faults, parsed, policy_faults, reading_faults

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:"
SOUND = """<!doctype html>
<html lang="en"><head><title>Sound</title><link rel="stylesheet" href="/a.css"><script src="/a.js"></script></head>
<body><main><h1>One</h1><h2>Two</h2>
<form action="/x"><label>Name <input name="a" list="names"></label>
<datalist id="names"><option value="n"></option></datalist>
<label for="b">B</label><select id="b" name="b"><option selected>1</option></select><button>Send</button></form>
<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td colspan="2">c</td></tr></tbody></table>
<svg><a href="#x"><g><title>t</title><text>t</text></g></a><rect/></svg><img src="/i.svg" alt="">
</main></body></html>"""


def test_a_sound_page_has_no_faults() -> None:
    document = parsed(SOUND)
    assert nesting_faults(document) + reading_faults(document) + policy_faults(document, POLICY) == []


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("<div><p>text</div>", "<p> of line 1 is not closed"),
        ("<div>", "<div> of line 1 is not closed"),
        ("text</b>", "</b> closes nothing"),
        ("<b><i>text</b></i>", "<i> of line 1 is not closed before </b>"),
        ('<b class="a" class="b">text</b>', "2 attributes class"),
        ('<b id="a"></b><i id="a"></i>', "'a' occurs 2 times"),
        ("<p><div>text</div></p>", "is inside <p>"),
        ("<h2><span><table></table></span></h2>", "is inside <h2>"),
        ("<ul><div>text</div></ul>", "is inside <ul>"),
        ("<ul>text</ul>", "has text of its own"),
        ("<div><li>text</li></div>", "is inside <div>"),
        ("<table><tr><td>text</td></tr></table>", "is inside <table>"),
        ("<form><form></form></form>", "is inside <form>"),
        ('<a href="/"><button>text</button></a>', "is inside <a>"),
        ("<details><p>text</p><summary>text</summary></details>", "not the first child"),
        ("<textarea><b>text</b></textarea>", "is inside <textarea>"),
    ],
)
def test_wrong_nesting_is_found(part: str, words: str) -> None:
    found = nesting_faults(parsed(part))
    assert any(words in each for each in found), found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("<!doctype html>", "", "no doctype"),
        (' lang="en"', "", "language"),
        ("<title>Sound</title>", "<title> </title>", "titles"),
        ("<main>", "<div>", "0 <main>"),
        ("<h2>Two</h2>", "<h3>Two</h3>", "follows <h1>"),
        ("<h1>One</h1>", "", "no <h1>"),
        ("<h2>Two</h2>", "<h2> </h2>", "is empty"),
        ("<label>Name <input", "<label><input", "has no label"),
        ('<label for="b">', "<label>", "has no label"),
        ('<button>Send</button>', "<button></button>", "has no name"),
        (' alt=""', "", "alternative text"),
        ('list="names"', 'list="gone"', "'gone'"),
        ('colspan="2"', "", "rows of [1, 2] cells"),
        ("<svg>", '<svg role="img">', "a role and no name"),
        ("Name <input", 'Name <input name="c"><input', "more than one control"),
    ],
)  # fmt: skip
def test_what_readers_would_miss_is_found(old: str, new: str, words: str) -> None:
    assert old in SOUND
    found = reading_faults(parsed(SOUND.replace(old, new)))
    assert any(words in each for each in found), found


@pytest.mark.parametrize(
    "part",
    [
        "<script>run()</script>",
        '<script src="https://evil.example/a.js"></script>',
        '<script src="//evil.example/a.js"></script>',
        "<style>p {}</style>",
        '<p style="color: red">text</p>',
        '<p onclick="run()">text</p>',
        '<img alt="" src="https://evil.example/a.png">',
        '<iframe src="/"></iframe>',
        '<base href="/x">',
    ],
)
def test_what_a_policy_forbids_is_found(part: str) -> None:
    assert policy_faults(parsed(SOUND.replace("</main>", f"{part}</main>")), POLICY)


def test_a_policy_may_name_a_script_by_its_hash() -> None:
    page = parsed("<script>run()</script>")
    allowed = "default-src 'none'; script-src 'sha256-AvyuiL0SD1mVY3NNxR+V2uo+lhk6RMFrytWmRt6CrJQ='"
    assert policy_faults(page, allowed) == []
    assert policy_faults(parsed("<script>run(1)</script>"), allowed)


def test_selectors_and_text() -> None:
    page = parsed('<div id="a" class="x y"><p class="x">one <b>two</b>three</p><p title="a b">four</p></div>')
    assert page.texts("div.x.y p") == ["one twothree", "four"]
    assert page.texts("#a p[title=a b]") == page.texts("p[title*=b]") == ["four"]
    assert page.one("p", "four") is page.one("[title]")
    assert page.all("p p") == page.all("p.y") == []
    assert parsed("<td><del>a</del><ins>b</ins>  c<br>d</td>").one("td").text == "a b c d"
    with pytest.raises(AssertionError, match="2 elements match"):
        page.one("p")
    with pytest.raises(AssertionError, match="no selector"):
        page.all("p:first-child")
