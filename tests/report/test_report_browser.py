"""The report in a real browser: looks, keyboard, sorting, search, printing; nothing leaves it."""

import math
import time

import pytest
from browser import DESKTOP, PHONE, barriers, chromium, opened
from report_runs import EVIL, made_up, silo_names, write_federation, write_runs
from served_reports import served

import silodp
from silodp.base.progress_file import ProgressFile
from silodp.report import write_report


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def small(folder):
    """Six silos with names that mean harm, over three budgets and none."""
    runs = folder / "runs"
    for number, epsilon in enumerate((1.0, 4.0, math.inf)):
        for method, scale in (("local", 1.5), ("fedavg", 1.3), ("mrmtl", 1.0)):
            result = made_up(
                method,
                silos=list(EVIL),
                scale=scale / (1 + number),
                epsilons=(epsilon,),
                data=EVIL[0],
                unproven=(EVIL[1],),
            )
            result.write(runs / f"{method}-{number}")
    return write_report([runs], folder / "small.html").as_uri()


@pytest.fixture(scope="module")
def large(folder):
    runs = write_federation(folder / "large", silos=silo_names(1000))
    return write_report([runs], folder / "large.html").as_uri()


@pytest.fixture(scope="module")
def ledgers(folder):
    """Of four silos: more than are shown unfolded."""
    lifetime = {"lifetime_epsilon": 6.0, "lifetime_delta": 1e-4}
    silodp.run(method="local", silos=4, rounds=2, epsilon=1, ledger=folder / "ledgers", **lifetime)
    return write_report([], folder / "ledgers.html", ledger=folder / "ledgers").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("which", ["small", "large"])
def test_it_fits_and_does_nothing_wrong(browser, request, which, size, scheme):
    address = request.getfixturevalue(which)
    with opened(browser, address, viewport=size, color_scheme=scheme) as page:
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size["width"]
        tables = page.locator(".scroll:visible").all()
        assert not [one for one in tables if one.evaluate("e => e.scrollWidth > e.clientWidth")]
        behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert behind == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(15, 19, 24)")
        drawn = page.locator("svg[role=img]:visible")
        assert drawn.count() > 3
        # Each drawing is shown once, in the form made for the screen.
        hidden = ".wide" if size is PHONE else ".narrow"
        assert page.locator(f"{hidden}:visible").count() == 0
        box = drawn.first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size["width"]


def test_harmful_names_are_shown_and_do_nothing(browser, small):
    with opened(browser, small) as page:
        assert "<script>alert(1)</script>" in page.inner_text("h1")
        assert page.locator("script").count() == 1
        assert page.locator("img").count() == 0


def test_the_policy_stops_a_script_that_got_in(browser, small, folder):
    """The last line of defence: were a name ever not escaped, it would still not run."""
    broken = folder / "broken.html"
    text = (folder / "small.html").read_text()
    broken.write_text(text.replace("<main", "<script>window.harm = 1</script><main", 1))
    context = browser.new_context()
    page = context.new_page()
    page.goto(broken.as_uri())
    assert page.evaluate("window.harm") is None
    context.close()


def test_the_keyboard_reaches_everything(browser, small):
    with opened(browser, small) as page:
        for one in page.locator("details").all():
            one.evaluate("node => { node.open = true }")
        expected = page.evaluate(
            """[...document.querySelectorAll(
                 "a[href], button, select, input, summary, [tabindex='0']")]
               .filter(node => node.getClientRects().length).length"""
        )
        reached = set()
        for _ in range(expected + 3):
            page.keyboard.press("Tab")
            at = page.evaluate(
                """() => { const all = [...document.querySelectorAll("*")];
                     const at = document.activeElement;
                     const style = getComputedStyle(at);
                     return [all.indexOf(at), style.outlineStyle, at === document.body] }"""
            )
            if not at[2]:
                assert at[1] != "none"  # one sees where one is
                reached.add(at[0])
        assert len(reached) >= expected


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_nobody_is_kept_out(browser, small, ledgers, size, scheme):
    """By the rules of WCAG and the habits that axe-core knows, everything unfolded."""
    for address in (small, ledgers):
        with opened(browser, address, viewport=size, color_scheme=scheme) as page:
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
            assert barriers(page) == []


def test_a_barrier_is_found(browser, folder, small):
    """So that the test above can fail."""
    broken = folder / "barrier.html"
    text = (folder / "small.html").read_text()
    broken.write_text(text.replace("<main", "<button></button><main", 1))
    with opened(browser, broken.as_uri()) as page:
        assert [found.split(":")[0] for found in barriers(page)] == ["button-name"]


def test_points_are_read_with_arrow_keys(browser, small):
    with opened(browser, small) as page:
        plot = page.locator(".plot").first
        tip = plot.locator(".tip")
        plot.focus()
        assert tip.is_hidden()
        page.keyboard.press("ArrowRight")
        assert "Local, epsilon 1" in tip.inner_text()
        page.keyboard.press("ArrowRight")
        assert "Local, epsilon 4" in tip.inner_text()
        page.keyboard.press("ArrowDown")
        assert "FedAvg, epsilon 4" in tip.inner_text()
        page.keyboard.press("End")
        assert "no privacy" in tip.inner_text()
        page.keyboard.press("Escape")
        assert tip.is_hidden()


def test_points_are_read_with_the_mouse(browser, small):
    with opened(browser, small) as page:
        plot = page.locator(".plot").first
        box = plot.locator(".pt:visible").nth(1).bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2 + 3, box["y"] + box["height"] / 2)
        assert "Local, epsilon 4" in plot.locator(".tip").inner_text()
        inside = plot.locator(".tip").bounding_box()
        assert inside["x"] >= 0


def test_series_and_bands_can_be_switched(browser, small):
    with opened(browser, small) as page:
        chart = page.locator(".chart").first
        button = chart.locator("[data-toggle]").first
        lines = chart.locator(".series:visible .line")
        before = lines.count()
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-pressed") == "false"
        assert lines.count() == before - 1
        page.keyboard.press("Enter")
        assert lines.count() == before
        bands = chart.locator("[data-bands]")
        assert chart.locator(".band.std:visible").count() > 0
        bands.select_option("none")
        assert chart.locator(".band:visible").count() == 0
        bands.select_option("error")
        assert chart.locator(".band.error:visible").count() > 0
        assert chart.locator(".band.std:visible").count() == 0


def test_tables_are_sorted_and_searched(browser, large):
    with opened(browser, large) as page:
        page.locator("summary", has_text="All 1,000 silos").click()
        table = page.locator("table", has=page.locator("th", has_text="records")).first
        first = table.locator("tbody tr").first
        assert "hospital 0" in first.inner_text()
        records = table.locator("thead button", has_text="records")
        records.click()
        records.click()
        assert "hospital 999" in first.inner_text()
        head = table.locator("thead th", has=page.locator("button", has_text="records"))
        assert head.get_attribute("aria-sort") == "descending"
        table.locator("thead button", has_text="silo").first.click()
        assert first.locator("th").inner_text() == "hospital 0"
        assert table.locator("tbody tr").nth(2).locator("th").inner_text() == "hospital 2"
        search = page.locator("[data-filter]:visible").first
        search.fill("hospital 77")
        assert table.locator("tbody tr:visible").count() == 11  # 77, and 770 to 779
        left = page.locator("[data-found]:visible").first
        assert left.get_attribute("role") == "status"  # read out
        assert left.inner_text() == "11 of 1000 rows"
        search.fill("nobody")
        assert left.inner_text() == "0 of 1000 rows"
        search.fill("")
        assert page.locator("[data-found]").first.text_content() == ""


def test_of_a_thousand_silos_few_elements_are_laid_out(browser, large):
    """A dozen a silo: that is what takes a browser time. Tables of all silos are folded."""
    with opened(browser, large) as page:
        every = page.evaluate("document.querySelectorAll('*').length")
        shown = page.evaluate(
            "[...document.querySelectorAll('*')].filter(e => e.getClientRects().length).length"
        )
    assert every < 60_000
    assert shown < 15_000


def test_printed_it_is_whole_and_light(browser, small):
    with opened(browser, small, color_scheme="dark") as page:
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") in (
            "rgb(255, 255, 255)",
            "rgba(0, 0, 0, 0)",
        )
        closed = page.locator("details:not([open])").count()
        assert closed > 0
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details:not([open])").count() == closed
        assert len(page.pdf()) > 20_000


def test_on_paper_headers_are_text_and_charts_fit_a_page(browser, large, folder):
    """Chromium draws no button in a header that it repeats on the next page."""
    runs = write_federation(folder / "forty", silos=silo_names(40))
    for address in (large, write_report([runs], folder / "forty.html").as_uri()):
        with opened(browser, address) as page:
            page.emulate_media(media="print")
            page.set_viewport_size({"width": 703, "height": 1000})  # A4 less its margins
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert page.locator("thead button:visible").count() == 0
            said = "[...document.querySelectorAll('thead th')].map("
            said += "th => getComputedStyle(th, '::before').content)"
            assert '"records + tests"' in page.evaluate(said)
            heights = "[...document.querySelectorAll('.plot svg')].map("
            heights += "one => one.getBoundingClientRect().height)"
            assert max(page.evaluate(heights)) < 900
            assert page.evaluate("document.documentElement.scrollWidth") <= 703


def test_a_live_page_announces_stages_alone(browser, tmp_path):
    (tmp_path / "run").mkdir()
    told = ProgressFile(tmp_path / "run", {"data": "d", "method": "mrmtl"})
    told.stage("training")
    with (
        served(tmp_path) as server,
        opened(browser, server.address, own=server.address) as page,
    ):
        assert page.locator("#announced").get_attribute("role") == "status"
        page.evaluate(
            "window.said = []; new MutationObserver(() => window.said.push("
            "document.getElementById('announced').textContent)).observe("
            "document.getElementById('announced'), {childList: true})"
        )
        for done in range(1, 4):
            time.sleep(0.6)  # it writes no more often
            told.trained(done, 10, 1 / done)
            page.locator("#live", has_text=f"{done} of 10 rounds").wait_for()
        assert page.evaluate("window.said") == []
        told.stage("choosing")
        page.locator("#live", has_text="Choosing").wait_for()
        assert page.evaluate("window.said") == ["d, mrmtl (run): choosing"]


def test_a_live_page_outlives_trouble(browser, tmp_path, monkeypatch):
    def broken(folders):
        raise ZeroDivisionError

    page = browser.new_page()  # not watched: that its server failed is told on its console
    try:
        with served(tmp_path) as server:
            page.goto(server.address)
            monkeypatch.setattr("silodp.report.server.live_part", broken)
            page.locator("#live", has_text="This could not be shown (ZeroDivisionError)").wait_for()
            assert "This could not be shown" in page.locator("#announced").text_content()
            page.reload()
            assert "This could not be shown (ZeroDivisionError)" in page.inner_text("main")
            monkeypatch.undo()
            page.locator("#live", has_text="Nothing is being trained here now").wait_for()
            assert "ZeroDivisionError" not in page.inner_text("body")
    finally:
        page.close()


def test_a_live_page_follows_a_run_to_its_end(browser, tmp_path):
    (tmp_path / "run").mkdir()
    told = ProgressFile(tmp_path / "run", {"data": EVIL[0], "method": "mrmtl"})
    told.promised(made_up(silos=list(EVIL)).privacy)
    told.stage("training")
    time.sleep(0.6)  # it writes no more often
    told.trained(1, 10, 0.9)
    with (
        served(tmp_path) as server,
        opened(browser, server.address, own=server.address) as page,
    ):
        assert "1 of 10 rounds" in page.inner_text("#live")
        time.sleep(0.6)
        told.trained(7, 10, 0.2)
        page.locator("#live", has_text="7 of 10 rounds").wait_for()
        assert page.locator("#live .line").count() > 0
        assert barriers(page) == []
        write_runs(tmp_path, made_up())
        (tmp_path / "run" / "progress.json").unlink()
        page.wait_for_selector("#run-0")
        assert "MR-MTL reaches" in page.inner_text("main")
        assert "Nothing is being trained here now" in page.inner_text("#live")
