import { render } from "preact";

import { App } from "./views/app.tsx";

render(<App />, document.getElementById("app") as HTMLElement);
