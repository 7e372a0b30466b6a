// The panel of files, as plays of the page use it.

/** Returns the panel. */
export function panel(page) {
  return page.locator(".files");
}

/** Returns the row of a file. */
export function file(page, path) {
  return panel(page).getByRole("listitem", { name: path, exact: true });
}

/** Drops files, given by their names, on the panel. */
export async function dropFiles(page, contents) {
  const dataTransfer = await page.evaluateHandle((contents) => {
    const dropped = new DataTransfer();
    for (const [name, content] of Object.entries(contents)) dropped.items.add(new File([content], name));
    return dropped;
  }, contents);
  for (const type of ["dragover", "drop"]) await panel(page).dispatchEvent(type, { dataTransfer });
}
