"""Texts of a page in which a name from right to left turns what stands beside it."""

from __future__ import annotations

from collections.abc import Sequence

from playwright.sync_api import Page

#: Names from right to left stand alone in an element or between marks (FSI, PDI); else they are found.
_TURNED = r"""(names) => {
  const TURNS = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/g;
  const alone = (text) => names.includes(text.trim()) || !/[\p{L}\p{N}]/u.test(text.replaceAll(TURNS, ""));
  const turned = (text) => (text.replace(/\u2068[^\u2068\u2069]*\u2069/g, "").search(TURNS) >= 0) && !alone(text);
  const parts = (e) => {
    const style = getComputedStyle(e);
    return style.display !== "inline" || /isolate|plaintext/.test(style.unicodeBidi);
  };
  const own = (e) => [...e.childNodes].map((node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.nodeType !== Node.ELEMENT_NODE || node.localName === "title") return "";
    return parts(node) ? "\ufffc" : own(node);
  }).join("");
  const found = turned(document.title) ? [`title: ${document.title}`] : [];
  for (const e of document.querySelectorAll("body, body *:not(script, style, pre, pre *, textarea)")) {
    for (const name of ["title", "aria-label", "alt", "placeholder"]) {
      if (turned(e.getAttribute(name) ?? "")) found.push(`${name}: ${e.getAttribute(name)}`);
    }
    if ((e.localName === "title" || parts(e)) && turned(own(e))) found.push(`${own(e)}: ${e.outerHTML.slice(0, 160)}`);
  }
  return found;
}"""


def turned_texts(page: Page, names: Sequence[str]) -> list[str]:
    return [text.encode("unicode_escape").decode() for text in page.evaluate(_TURNED, list(names))]
