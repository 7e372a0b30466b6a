/** Yields the primes up to a limit, in order. */
export function* primes(limit) {
  const isComposite = new Uint8Array(limit + 1);
  for (let number = 2; number <= limit; number += 1) {
    if (isComposite[number]) continue;
    yield number;
    for (let multiple = number * number; multiple <= limit; multiple += number) isComposite[multiple] = 1;
  }
}
