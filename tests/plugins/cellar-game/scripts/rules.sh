# Quotes make the sentence a JSON value.
printf '"%s"\n' 'Walk north, south, east or west, take THING, look; the gate needs the key.'
