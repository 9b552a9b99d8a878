// Light or dark theme, or that of the system; the choice is stored in the browser.

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  try {
    localStorage.setItem("inlayer-theme", theme);
  } catch {
    // A page opened from disk may have no storage; the choice is then lost when it is closed.
  }
}

function storedTheme() {
  try {
    const theme = localStorage.getItem("inlayer-theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "auto";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}
