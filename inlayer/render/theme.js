// Light or dark theme, or the system's; the choice is stored in the browser, for every page.

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  store("inlayer-theme", theme);
  document.dispatchEvent(new Event("theme-change")); // so that canvas drawings change with it
}

function storedTheme() {
  const theme = stored("inlayer-theme");
  return THEMES.includes(theme) ? theme : "auto";
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "auto";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}

// Browser storage may be missing in a page opened from disk; choices are then lost when it is closed.
function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // the choice cannot be stored
  }
}

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}
