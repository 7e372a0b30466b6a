// Gets a player from the register that comes with the plugin (seed 002 section 5.5).
//
// Reads {"player_id"} from standard input and writes {"status", "result" | "error"}.

"use strict";

const fs = require("node:fs");
const path = require("node:path");

const REGISTER = path.join(__dirname, "..", "data", "players.json");

function answerTo(playerId) {
  const players = JSON.parse(fs.readFileSync(REGISTER, "utf8"));
  if (!Object.hasOwn(players, playerId)) {
    return { status: "error", error: `no player has the id '${playerId}'; the register has ${Object.keys(players).join(", ")}` };
  }
  return { status: "success", result: { player_id: playerId, ...players[playerId] } };
}

const { player_id: playerId } = JSON.parse(fs.readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(answerTo(playerId)));
