import { useState } from "preact/hooks";

type Send = (contents: File[]) => void;

/** Chooses files of this machine. */
export function Choose({ label, text, accept, multiple = false, send }: { label: string; text: string; accept?: string; multiple?: boolean; send: Send }) {
  return (
    <label class="choose">
      <input
        type="file"
        multiple={multiple}
        accept={accept}
        aria-label={label}
        onChange={({ currentTarget }) => {
          send([...(currentTarget.files ?? [])]);
          // The same file can be chosen again.
          currentTarget.value = "";
        }}
      />
      <span>{text}</span>
    </label>
  );
}

/** Returns the listeners of a part of the page on which files are dropped, and whether some are over it. */
export function useDrop(isAllowed: boolean, send: Send) {
  const [isOver, setOver] = useState(false);
  return {
    isOver,
    onDragOver: (event: DragEvent) => {
      if (!isAllowed) return;
      event.preventDefault();
      setOver(true);
    },
    onDragLeave: () => setOver(false),
    onDrop: (event: DragEvent) => {
      event.preventDefault();
      setOver(false);
      send([...(event.dataTransfer?.files ?? [])]);
    },
  };
}
