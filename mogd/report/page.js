"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => {
    button.textContent = isDark() ? "Light page" : "Dark page";
  };
  // A page opened from a file may be refused storage: then the choice lasts until it is closed.
  const remember = (theme) => { try { localStorage.setItem("mogd-theme", theme); } catch { /* not kept */ } };
  const remembered = () => { try { return localStorage.getItem("mogd-theme"); } catch { return null; } };

  const kept = remembered();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    show();
  });
  system.addEventListener("change", show);
  show();

  // Paper shows what was folded away.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((d) => { d.open = false; }));
})();
