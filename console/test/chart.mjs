// Plays the way from a file to a chart on the page, in each look: sales.csv is dropped, an agent is asked, its code
// reads the file, and the chart stands in the timeline.
import assert from "node:assert/strict";
import { join } from "node:path";

import { look, LOOKS, onPage, withBrowser } from "./harness.mjs";
import { dropFiles, file, panel } from "./panel.mjs";

await withBrowser(async (browser, address, pictures) => {
  for (const { size: viewport, colorScheme } of LOOKS) {
    await onPage(browser, { address, pictures, viewport, colorScheme }, async (page) => {
      const isNarrow = viewport.width < 900;
      const picture = (view) => {
        const name = `chart-${view}-${viewport.width}-${colorScheme}`;
        return look(page, join(pictures, `${name}.png`), name);
      };
      await page.goto(`${address}/console`);
      await page.getByRole("option", { name: "analyst" }).waitFor({ state: "attached" });
      if (isNarrow) await panel(page).locator("summary").click();
      await dropFiles(page, { "sales.csv": "month,sum\nJan,10\nFeb,12\nMar,9\n" });
      await file(page, "sales.csv").waitFor();
      if (isNarrow) await panel(page).locator("summary").click();

      await page.getByRole("combobox", { name: /^To/ }).selectOption({ label: "analyst" });
      await page.getByRole("textbox", { name: "Message" }).fill("Draw the sales.");
      await page.getByRole("button", { name: "Send" }).click();
      const turn = page.getByRole("article", { name: "Turn 1" });
      const results = turn.getByRole("list", { name: "Results" });
      const drawn = results.locator("img");
      await page.waitForFunction((image) => image.complete && image.naturalWidth === 90, await drawn.elementHandle());
      // The chart is there before its cell ends.
      await turn.locator(".runhead").getByText("running", { exact: true }).waitFor({ timeout: 1_000 });
      assert.match(await drawn.getAttribute("src"), /\/files\/results\/[0-9a-f]{16}\.png$/);
      await turn.getByRole("list", { name: "Changed files" }).getByText(/^created out\/report\.csv/).waitFor();
      await turn.getByText("Done.").waitFor();
      await results.getByText("drawn").waitFor();
      assert.equal(await results.locator(":scope > li").count(), 2);
      await drawn.scrollIntoViewIfNeeded();
      await picture("drawn");
      if (isNarrow) await panel(page).locator("summary").click();
      await file(page, "out/report.csv").waitFor();
      await picture("files");

      // The chart is there for the one who opens the conversation again.
      await page.reload();
      await page.waitForFunction((image) => image.complete && image.naturalWidth === 90, await drawn.elementHandle());
    });
  }
});
