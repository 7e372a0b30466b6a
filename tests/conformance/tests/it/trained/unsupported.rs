//! Calls in formats that are not supported, as their families write them.

/// Calls in formats that are not read.
pub(super) static UNSUPPORTED: &[(&str, &str)] = &[
    (
        "gemma",
        "```tool_code\nprint(get_weather(city=\"Paris\", days=3))\n```",
    ),
    (
        "gemma 4",
        "<|tool_call>call:get_weather{city:\"Paris\"}<tool_call|>",
    ),
    (
        "function gemma",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>",
    ),
    (
        "llama 4",
        "[get_weather(city=\"Paris\", days=3), get_time()]",
    ),
    (
        "llama 4, marked",
        "<|python_start|>get_weather(city='Paris')<|python_end|>",
    ),
    (
        "llama 3.1",
        "<|python_tag|>get_weather.call(city=\"Paris\")",
    ),
    (
        "lfm2",
        "<|tool_call_start|>[get_weather(city=\"Paris\")]<|tool_call_end|>",
    ),
    ("cline", "<get_weather>\n<city>Paris</city>\n</get_weather>"),
    (
        "react",
        "Thought: I need the weather.\nAction: get_weather\nAction Input: {\"city\": \"Paris\"}",
    ),
    (
        "phi 4",
        "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]<|/tool_call|>",
    ),
    (
        "phi 3.5",
        "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]",
    ),
    (
        "nemotron",
        "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]</TOOLCALL>",
    ),
    (
        "internlm",
        "<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}<|action_end|>",
    ),
    (
        "cohere",
        "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}]<|END_ACTION|>",
    ),
    (
        "step",
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"get_weather\"><steptml:parameter name=\"city\">Paris</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
    ),
    (
        "tool_call in brackets",
        "[TOOL_CALL]\n{\"tool\": \"get_weather\", \"args\": {\"city\": \"Paris\"}}\n[/TOOL_CALL]",
    ),
    (
        "glaive",
        "<functioncall> {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}} </functioncall>",
    ),
    (
        "json behind prose",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n{\"name\": \"get_time\", \"arguments\": {}}",
    ),
];
