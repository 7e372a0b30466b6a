//! numpy, pandas and matplotlib. `make test` leaves these tests out by name where the set `data` is not built.

use std::collections::BTreeSet;

use contracts::tavern::sandbox::v1::Collect;

use super::{host, with};
use crate::{
    support::{expect_class, expect_output, python, stdout},
    warm::{self, run_warm},
};

#[tokio::test]
async fn a_figure_is_drawn_and_collected() {
    let source = "
import pandas, matplotlib.pyplot
pandas.DataFrame({'sum': [3, 1, 4]}).plot()
matplotlib.pyplot.savefig('figure.png')
";
    let host = host().await;
    let mut asked = with("data", warm::python(source));
    asked.collect = Some(Collect::default());
    for response in [host.run(asked.clone()).await, run_warm(&host, asked).await] {
        expect_class(&response, &["exited 0"]);
        assert_eq!(String::from_utf8_lossy(&response.stderr), "");
        let files = response.collected.unwrap().files;
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(
            files[0].content.starts_with(b"\x89PNG"),
            "{:?}",
            files[0].path
        );
    }
}

#[tokio::test]
async fn fonts_and_bytecode_are_found_and_not_made_again() {
    let source = "
import os, sys, numpy, matplotlib.font_manager
names = sorted(os.listdir(os.environ['MPLCONFIGDIR']))
cached = numpy.__spec__.cached
print(all(os.path.islink(os.path.join(os.environ['MPLCONFIGDIR'], name)) for name in names), os.path.isfile(cached))
";
    let host = host().await;
    expect_output(&host.run(with("data", python(source))).await, "True True\n");
}

/// Numbers and addresses of two scripts that waited: draws of each generator, hashes, addresses of objects.
#[tokio::test]
async fn two_waiting_interpreters_have_no_random_number_in_common() {
    let source = "
import numpy, os, pandas, random, uuid
print(*(random.random() for _ in range(10000)))
print(*numpy.random.random(10000))
print(*numpy.random.default_rng().random(10000))
print(hash('a'), hash('b'), hash(b'c'))
print(id(object()), id(numpy), id(pandas), id(random))
print(os.urandom(8).hex(), uuid.uuid4())
";
    let host = host().await;
    let asked = with("data", warm::python(source));
    let mut seen: [BTreeSet<String>; 6] = Default::default();
    for _ in 0..3 {
        let response = run_warm(&host, asked.clone()).await;
        expect_class(&response, &["exited 0"]);
        let text = stdout(&response);
        for (line, seen) in text.lines().zip(&mut seen) {
            let drawn: BTreeSet<String> = line.split(' ').map(str::to_owned).collect();
            let common: Vec<_> = drawn.intersection(seen).collect();
            assert!(common.is_empty(), "{common:?}");
            seen.extend(drawn);
        }
    }
    assert!(seen[0].len() == 30_000 && seen[3].len() == 9);
}
