// A classic script in the head: the chosen theme is there before anything is painted.
(() => {
  const key = "rejoinder.theme";
  const root = document.documentElement;
  const chosen = localStorage.getItem(key);
  if (chosen) root.dataset.theme = chosen;

  function isDark() {
    if (root.dataset.theme) return root.dataset.theme === "dark";
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `${button.textContent} theme`);
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      localStorage.setItem(key, root.dataset.theme);
      name();
    });
    name();
  });
})();
