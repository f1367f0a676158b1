// -- colours of the page ------------------------------------------------------------------

document.documentElement.classList.add("alive");

document.querySelectorAll("[data-theme-choice]").forEach((button, _, all) => {
  button.addEventListener("click", () => {
    const choice = button.dataset.themeChoice;
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    all.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
  });
});
