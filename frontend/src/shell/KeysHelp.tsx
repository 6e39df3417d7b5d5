import { Modal } from "@mantine/core";

const KEYS: [string, string][] = [
  ["/", "Search or go to a job"],
  ["C", "Submit a job"],
  ["G then O", "Overview"],
  ["G then J", "Jobs"],
  ["G then S", "Submit"],
  ["G then F", "Fair share"],
  ["G then E", "Fairness: how evenly jobs are slowed"],
  ["G then R", "Projects"],
  ["G then U", "Usage and cost"],
  ["G then C", "Cluster"],
  ["G then L", "Limits"],
  ["G then N", "Notifications"],
  ["G then T", "API tokens"],
  ["J, K", "Next and previous row"],
  ["X", "Select the row"],
  ["Enter", "Open the row"],
  ["T", "Theme: light, dark, as the system"],
  ["Ctrl Enter or ⌘ Enter", "Send the form"],
  ["Esc", "Close, leave the field"],
  ["?", "This list"],
];

export function KeysHelp({ opened, onClose, admin }: { opened: boolean; onClose: () => void; admin: boolean }) {
  const keys = admin ? [...KEYS.slice(0, 10), ["G then P", "Policy"] as [string, string], ...KEYS.slice(10)] : KEYS;
  return (
    <Modal opened={opened} onClose={onClose} title="Keys" size={380} closeButtonProps={{ "aria-label": "Close" }}>
      <dl style={{ gap: "8px 14px" }}>
        {keys.map(([key, what]) => (
          <div key={key} style={{ display: "contents" }}>
            <dt style={{ color: "var(--ink)" }}>{what}</dt>
            <dd><kbd>{key}</kbd></dd>
          </div>
        ))}
      </dl>
    </Modal>
  );
}
