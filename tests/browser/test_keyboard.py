"""Keyboard use of the walk page, with a visible focus."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

START = "text=I+love+dogs&step=1"
FOCUSED = "document.activeElement"


def focus_is(watched, selector: str) -> bool:
    return bool(watched.page.evaluate("(selector) => document.activeElement.matches(selector)", selector))


def test_arrow_keys_move_through_all_steps(open_page):
    watched = open_page(START)
    for step in range(2, 9):
        watched.page.keyboard.press("ArrowRight")
        assert watched.text("#steps [aria-current=step] .step-button-number") == str(step)
        assert watched.page.get_attribute(".figure", "data-step") == str(step)
        assert f"Step {step} of 8" in watched.page.text_content("#live")
    watched.page.keyboard.press("ArrowRight")  # no effect at the last step
    assert "step=8" in watched.fragment()
    watched.page.keyboard.press("ArrowLeft")
    assert "step=7" in watched.fragment()
    watched.page.keyboard.press("3")
    assert "step=3" in watched.fragment()


def test_shortcuts_are_ignored_while_typing(open_page):
    watched = open_page(START)
    watched.page.focus("#texts textarea")
    watched.page.keyboard.press("ArrowRight")
    watched.page.keyboard.press("3")
    assert "step=1" in watched.fragment()


def tab_into_the_matrix(watched) -> None:
    for _ in range(3):  # the container that scrolls may also be a stop
        watched.page.keyboard.press("Tab")
        if focus_is(watched, ".matrix *"):
            return


def test_grid_is_one_tab_stop_with_arrow_keys_inside(open_page):
    watched = open_page("text=I+love+dogs&step=5")
    page = watched.page
    page.focus("#dims")
    tab_into_the_matrix(watched)
    assert focus_is(watched, "[data-field=token][data-t='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert focus_is(watched, "[data-field=row][data-t='1'][data-d='1']")
    assert "rows[0,1,1] = E[812,1]" in watched.inspector()
    assert "rows[0,1,1]" in page.text_content("#live")
    page.keyboard.press("End")
    assert focus_is(watched, "[data-field=row][data-t='3'][data-d='7']")
    page.keyboard.press("Home")
    assert focus_is(watched, "[data-field=token][data-t='0']")
    assert "step=5" in watched.fragment()
    page.keyboard.press("Tab")
    assert not focus_is(watched, ".matrix *")
    page.keyboard.press("Shift+Tab")
    assert focus_is(watched, "[data-field=token][data-t='0']")  # back at the same cell


def test_all_controls_are_reachable_with_visible_focus(open_page):
    watched = open_page("text=I+love+dogs&step=7")
    page = watched.page
    page.evaluate("document.activeElement.blur()")
    reached, unseen = [], []
    for _ in range(60):
        page.keyboard.press("Tab")
        told = page.evaluate(
            """() => { const here = document.activeElement;
                 const shown = here.matches(".option input") ? here.nextElementSibling : here;
                 return [here.id || here.className || here.tagName, here.matches(":focus-visible"),
                   parseFloat(getComputedStyle(shown).outlineWidth)]; }"""
        )
        if told[0] == "BODY":
            break
        reached.append(told[0])
        if not (told[1] and told[2] >= 2):
            unseen.append(told)
    assert unseen == []
    wanted = {
        "skip",
        "view-walk",
        "view-initialization",
        "predict",
        "theme",
        "help",
        "model",
        "dims",
        "add-text",
        "step-1",
    }
    wanted |= {"step-8", "back", "next", "swap", "pad-more", "positions-rotary", "theta", "scene-canvas", "map"}
    assert wanted <= set(reached)


def test_skip_link_focuses_the_step_and_keeps_the_address(open_page):
    watched = open_page(START)
    before = watched.page.url
    watched.page.focus("#skip")
    watched.page.keyboard.press("Enter")
    assert focus_is(watched, "#stage")
    assert watched.page.url == before


def test_token_panel_by_keyboard(open_page):
    watched = open_page("text=I+love+dogs&step=5")
    page = watched.page
    page.focus("#dims")
    tab_into_the_matrix(watched)
    for key in ("ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#token h3")
    assert focus_is(watched, "#token")
    page.keyboard.press("Escape")
    page.wait_for_selector("#token", state="hidden")
    assert focus_is(watched, "[data-field=token][data-t='1']")


def test_swap_by_keyboard(open_page):
    watched = open_page("text=I+love+dogs&step=5")
    page = watched.page
    page.keyboard.press("s")
    assert watched.text("#swap") == "Swap two tokens"
    assert watched.text(".swap .note") == "Select the first token."
    assert focus_is(watched, "[data-token][data-b='0']")  # focused without Tab
    for key in ("ArrowRight", "Enter", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#changed-note")
    assert "swap=1%2C2" in watched.fragment()
    page.keyboard.press("r")
    page.wait_for_selector("#changed-note", state="detached")
    assert "swap" not in watched.fragment()


def test_escape_cancels_a_swap(open_page):
    watched = open_page("text=I+love+dogs&step=5")
    watched.page.keyboard.press("s")
    watched.page.keyboard.press("Escape")
    assert watched.text("#swap") == "Swap two tokens"
    assert watched.page.locator(".swap .note").count() == 0


def test_cancel_ends_a_swap(open_page):
    watched = open_page("text=I+love+dogs&step=5")
    watched.page.click("#swap")
    outline = "(one) => getComputedStyle(one).outlineStyle"
    assert watched.page.eval_on_selector("[data-field=token][data-t='1']", outline) == "dashed"
    watched.page.click("#swap-cancel")
    assert watched.page.get_attribute("#swap", "aria-pressed") == "false"
    assert watched.page.eval_on_selector("[data-field=token][data-t='1']", outline) == "none"


def test_help_opens_and_closes(open_page):
    watched = open_page(START)
    watched.page.keyboard.press("?")
    assert watched.page.is_visible("#keys")
    assert focus_is(watched, "#keys *")
    watched.page.keyboard.press("ArrowRight")  # ignored while the dialog is open
    watched.page.keyboard.press("Escape")
    assert not watched.page.is_visible("#keys")
    assert "step=1" in watched.fragment()


def test_focus_moves_to_the_next_text_after_removal(open_page):
    watched = open_page("text=a&text=b&text=c&step=5")
    watched.page.focus("[aria-label='Remove text 2']")
    watched.page.keyboard.press("Enter")
    watched.settle()
    assert focus_is(watched, "textarea")
    assert watched.page.evaluate("document.activeElement.value") == "c"
    watched.page.focus("[aria-label='Remove text 2']")
    watched.page.keyboard.press("Enter")
    watched.settle()
    assert watched.page.evaluate("document.activeElement.value") == "a"


def test_focus_stays_on_the_next_seed_button(open_page):
    watched = open_page("text=I+love+dogs&view=initialization")
    watched.page.focus("#next-seed")
    for seed in (1, 2):
        watched.page.keyboard.press("Enter")
        watched.page.wait_for_selector(f".once:has-text('seed {seed}')")
        assert focus_is(watched, "#next-seed")


def test_shortcuts_work_on_radio_buttons_which_keep_their_arrow_keys(open_page):
    watched = open_page("text=I+love+dogs&model=default&step=6")
    page = watched.page
    page.focus("#positions-rotary")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#changed-note")
    assert "positions=sinusoidal" in watched.fragment()
    assert "step=6" in watched.fragment()
    page.keyboard.press("7")
    assert "step=7" in watched.fragment()


def test_single_key_shortcuts_can_be_disabled(open_page):
    watched = open_page("text=I+love+dogs&model=default&step=6")
    page = watched.page
    page.keyboard.press("?")
    page.uncheck("#single-keys")
    page.keyboard.press("Escape")
    for key in ("3", "i", "?"):
        page.keyboard.press(key)
    assert "step=6" in watched.fragment()
    assert not page.is_visible("#keys")
    page.keyboard.press("ArrowRight")  # not a printable character
    assert "step=7" in watched.fragment()
    page.reload()
    page.wait_for_selector(".figure")
    page.keyboard.press("3")
    assert "step=7" in watched.fragment()
    page.click("#help")
    page.check("#single-keys")
    page.keyboard.press("Escape")
    page.keyboard.press("3")
    assert "step=3" in watched.fragment()
