use super::*;

const NONE: Limits = Limits {
    iterations: None,
    calls_per_response: None,
    calls: None,
    bytes: None,
    depth: None,
    tokens: None,
    money_micros: None,
    wall_seconds: None,
};

fn tokens(limit: u64) -> Budgets {
    Budgets {
        tokens: Some(limit),
        ..Budgets::default()
    }
}

#[test]
fn g105_a_request_comes_first_and_never_exceeds_the_profile() {
    let profile = Limits {
        iterations: Some(6),
        tokens: Some(40_000),
        ..NONE
    };
    let asks = |iterations, tokens| Limits {
        iterations,
        tokens,
        ..NONE
    };
    let settle = |request| Budgets::settled(&Budgets::default(), &profile, &request);
    let cases = [
        (asks(None, None), (6, Some(40_000))),
        (asks(Some(3), Some(500)), (3, Some(500))),
        (asks(Some(100), Some(90_000)), (6, Some(40_000))),
    ];
    for (request, expected) in cases {
        let settled = settle(request);
        assert_eq!((settled.iterations, settled.tokens), expected);
        assert_eq!(settled.calls, 64);
    }
}

#[test]
fn g105_the_services_money_bounds_everyone_and_its_rounds_are_a_default() {
    let defaults = Budgets {
        money_micros: Some(100),
        ..Budgets::default()
    };
    let request = Limits {
        iterations: Some(90),
        money_micros: Some(5_000),
        ..NONE
    };
    let settled = Budgets::settled(&defaults, &NONE, &request);
    assert_eq!((settled.iterations, settled.money_micros), (90, Some(100)));
}

#[test]
fn g701_a_tenth_of_the_tokens_is_kept_for_the_last_answer() {
    let budgets = tokens(1_000);
    let used = |tokens| Used {
        tokens,
        ..Used::default()
    };
    assert_eq!(budgets.spent_before_round(&used(899)), None);
    let spent = Some((Budget::Tokens(1_000), 900));
    assert_eq!(budgets.spent_before_round(&used(900)), spent);
    assert_eq!(budgets.spent(&used(999)), None);
    assert!(budgets.spent(&used(1_000)).is_some());
}

#[test]
fn g701_a_budget_is_nearly_spent_from_four_fifths_on() {
    let budgets = Budgets {
        iterations: 5,
        calls: 10,
        ..Budgets::default()
    };
    let used = |iterations, calls| Used {
        iterations,
        calls,
        ..Used::default()
    };
    let nearly = |used: Used| budgets.nearly_spent(&used).collect::<Vec<_>>();
    assert_eq!(nearly(used(3, 7)), []);
    assert_eq!(
        nearly(used(4, 8)),
        [(Budget::Iterations(5), 4), (Budget::Calls(10), 8)]
    );
    assert_eq!(
        nearly(used(5, 10)),
        [],
        "a spent budget is reported as such"
    );
}

#[test]
fn g702_a_reservation_lowers_the_answer_to_what_is_left() {
    let budgets = tokens(10_000);
    let used = Used {
        tokens: 4_000,
        ..Used::default()
    };
    let reserve = |request, is_last| budgets.reserve(&used, request, is_last, |_| u64::MAX);
    assert_eq!(reserve(1_000, false), Ok(Some(4_000)));
    assert_eq!(reserve(1_000, true), Ok(Some(5_000)));
    assert_eq!(reserve(4_744, false), Ok(Some(256)));
    assert_eq!(reserve(4_745, false), Err(Budget::Tokens(10_000)));
    assert_eq!(
        Budgets::default().reserve(&used, 1_000, false, |_| 0),
        Ok(None)
    );
}

#[test]
fn g702_money_buys_what_the_prices_allow() {
    let budgets = Budgets {
        money_micros: Some(1_000),
        ..tokens(100_000)
    };
    let used = Used::default();
    assert_eq!(budgets.reserve(&used, 0, false, |left| left), Ok(Some(900)));
    assert_eq!(
        budgets.reserve(&used, 0, true, |left| left / 5),
        Err(Budget::Money(1_000))
    );
}

#[test]
fn g702_a_model_without_a_limit_is_asked_for_less_than_it_would_give_only() {
    assert_eq!(within(None, None), None);
    assert_eq!(within(Some(600), None), Some(600));
    assert_eq!(within(Some(600), Some(300)), Some(300));
    assert_eq!(within(Some(600), Some(30_000)), Some(600));
    assert_eq!(within(None, Some(300)), Some(300));
    assert_eq!(within(None, Some(30_000)), None);
}
