"""The rooms of the cellar, their exits and their things."""

START = "stairs"
GOAL = "gate"

ROOMS = {
    "stairs": {
        "text": "Worn stairs lead down from a door that has fallen shut.",
        "exits": {"north": "vault"},
        "things": ["lamp"],
    },
    "vault": {
        "text": "A vault of brick. It is dark towards the east.",
        "exits": {"south": "stairs", "east": "wine", "north": "gate"},
        "things": [],
    },
    "wine": {
        "text": "Empty racks, and a nail in the wall.",
        "exits": {"west": "vault"},
        "things": ["key"],
    },
    "gate": {"text": "Fresh air: the gate is open.", "exits": {}, "things": []},
}

# The thing without which a room cannot be entered, and the answer to those who try.
NEEDED = {
    "wine": ("lamp", "It is too dark to go there."),
    "gate": ("key", "The gate is locked."),
}
