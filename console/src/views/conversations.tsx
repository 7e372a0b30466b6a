import { useEffect, useState } from "preact/hooks";

import { call } from "../api/connect.ts";
import type { Conversation, Message } from "../api/types.ts";
import { may } from "../model/caller.ts";
import { openConversation } from "../model/conversation.ts";
import { address } from "../model/route.ts";
import { useLoaded } from "./load.ts";
import { Pages, usePlace } from "./pages.tsx";
import { time } from "./text.ts";
import { StateMark } from "./timeline.tsx";

/** Conversations of a page of the list. */
const PAGE = 20;
/** Characters of the first message that name a conversation. */
const TITLE = 90;

interface Page {
  conversations?: Conversation[];
  nextPageToken?: string;
}

/** The conversations, the newest first, a page at a time; read again after `changes`. */
export function Conversations({ chosen, changes }: { chosen: string; changes: string }) {
  const place = usePlace();
  const { pageToken } = place;
  const load = () => call<Page>("agent.v1.ConversationService/ListConversations", { pageSize: PAGE, pageToken });
  const page = useLoaded(load, `${pageToken} ${changes}`);
  const conversations = page.value?.conversations ?? [];
  const next = page.value?.nextPageToken;
  return (
    <nav class="conversations" aria-label="Conversations">
      {may("invoke") && <a class="quiet-button new" href={address("chat")} onClick={() => openConversation("")}>New conversation</a>}
      {page.problem && <p class="problem" role="alert">{page.problem}</p>}
      <ul class="list">
        {conversations.map((conversation) => (
          <li key={conversation.conversationId}>
            <Entry conversation={conversation} chosen={conversation.conversationId === chosen} />
          </li>
        ))}
      </ul>
      {(pageToken || next) && <Pages place={place} next={next} />}
    </nav>
  );
}

/** Titles that were read, by conversation: a first message does not change. */
const titles = new Map<string, string>();

function Entry({ conversation: { conversationId, createTime, activeRunId }, chosen }: { conversation: Conversation; chosen: boolean }) {
  const [title, setTitle] = useState(titles.get(conversationId) ?? "");
  useEffect(() => {
    if (title) return;
    const request = { conversationId, pageSize: 1 };
    const first = call<{ messages?: Message[] }>("agent.v1.ConversationService/ListMessages", request);
    first.then(({ messages: [message] = [] }) => {
      const text = short(message?.text ?? "");
      if (text) titles.set(conversationId, text);
      setTitle(text);
    }, () => {});
  }, [conversationId]);
  return (
    <a href={address("chat", conversationId)} aria-current={chosen ? "true" : undefined}>
      <span class="title">{title}</span>
      {activeRunId && <StateMark state="running" />}
      <time dateTime={createTime}>{time(createTime)}</time>
      <code class="id">{conversationId}</code>
    </a>
  );
}

function short(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > TITLE ? `${line.slice(0, TITLE - 1)}…` : line;
}
