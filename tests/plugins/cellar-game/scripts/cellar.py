"""Plays a list of moves and prints the place where they end."""

import json
import sys

from world import GOAL, NEEDED, ROOMS, START


class WrongMove(Exception):
    """A move that the game does not know."""


def step(place, carried, move):
    """Plays one move. Returns the new place and a remark; a thing that is taken is added to `carried`."""
    verb, _, thing = move.lower().partition(" ")
    room = ROOMS[place]
    if verb == "look":
        return place, ""
    if verb == "take":
        if thing in carried or thing not in room["things"]:
            return place, f"There is no {thing or 'such thing'} here."
        carried.append(thing)
        return place, f"You take the {thing}."
    if verb not in ("north", "south", "east", "west"):
        raise WrongMove(f"'{move}' is no move; try north, south, east, west, take THING or look")
    target = room["exits"].get(verb)
    if target is None:
        return place, "There is only a wall."
    needed, refusal = NEEDED.get(target, (None, ""))
    if needed and needed not in carried:
        return place, refusal
    return target, ""


def play(moves):
    place, carried, remark = START, [], ""
    for number, move in enumerate(moves, 1):
        if place == GOAL:
            raise WrongMove(f"the game ended before move {number}; start a new one")
        place, remark = step(place, carried, move)
    here = [thing for thing in ROOMS[place]["things"] if thing not in carried]
    return {
        "room": place,
        "text": " ".join(filter(None, [remark, ROOMS[place]["text"]])),
        "things": here,
        "carried": carried,
        "won": place == GOAL,
    }


if __name__ == "__main__":
    try:
        print(json.dumps(play(json.load(sys.stdin)["moves"])))
    except WrongMove as error:
        print(json.dumps({"success": False, "error": {"message": str(error)}}))
