import { Menu, Modal } from "@mantine/core";
import { useState } from "react";
import { useModelTypes } from "../../api/hooks";
import { useReadTemplate, useRemoveTemplate, useTemplates } from "../../api/templateHooks";
import type { Session, TemplateSummary } from "../../api/types";
import type { JobFile } from "../../lib/jobfile/jobFile";
import { draftOf, examplesOf, grouped } from "../../lib/jobfile/templates";
import type { Draft } from "./useDraft";
import { Name } from "../../components/Name";

/** Examples and templates: choosing one fills form and YAML. */
export function StartFrom({ draft, session }: { draft: Draft; session: Session }) {
  const templates = useTemplates();
  const models = useModelTypes().data ?? [];
  const read = useReadTemplate();
  const [managing, setManaging] = useState(false);
  const found = templates.data?.results ?? [];
  const project = draft.get("project");
  const begin = (file: JobFile) => draft.begin(draftOf(file, project));
  const choose = (one: TemplateSummary) => read.mutate(one.id, { onSuccess: (template) => begin(template.file as JobFile) });
  return (
    <>
      {read.error && <span className="bad" role="alert" style={{ color: "var(--bad)" }}>{read.error.message}</span>}
      <Menu position="bottom-end" width={260}>
        <Menu.Target><button type="button" className="btn sm" disabled={read.isPending}>{read.isPending ? "Reading" : "Start from"}</button></Menu.Target>
        <Menu.Dropdown mah="60vh" style={{ overflowY: "auto" }}>
          {grouped(found, session).map((group) => [
            <Menu.Label key={group.label}>{group.label}</Menu.Label>,
            ...group.templates.map((one) => <Menu.Item key={one.id} title={one.description || undefined} onClick={() => choose(one)}><Name>{one.name}</Name></Menu.Item>),
          ])}
          <Menu.Label>Examples</Menu.Label>
          {examplesOf(models, typeof project === "string" ? project : undefined).map((one) => <Menu.Item key={one.name} title={one.title} onClick={() => begin(one.file)}><Name>{one.name}</Name></Menu.Item>)}
          {found.some((one) => one.can_change) && <><Menu.Divider /><Menu.Item onClick={() => setManaging(true)}>Remove templates</Menu.Item></>}
          {templates.error && <Menu.Label>Templates could not be read: {templates.error.message}</Menu.Label>}
        </Menu.Dropdown>
      </Menu>
      {managing && <Remove templates={found.filter((one) => one.can_change)} onClose={() => setManaging(false)} />}
    </>
  );
}

function Remove({ templates, onClose }: { templates: TemplateSummary[]; onClose: () => void }) {
  const remove = useRemoveTemplate();
  const [sure, setSure] = useState<number | null>(null);
  return (
    <Modal opened onClose={onClose} title="Remove templates" size={440} closeButtonProps={{ "aria-label": "Close" }}>
      <div style={{ display: "grid", gap: 10 }}>
        <p style={{ color: "var(--ink-2)" }}>Jobs that began with one stay as they are.</p>
        {templates.length === 0 && <p className="sub">None is left.</p>}
        {templates.map((one) => (
          <div key={one.id} style={{ display: "flex", gap: 8, alignItems: "center" }}>
            <span className="grow"><Name>{one.name}</Name>{one.project && <span className="sub"> of <Name>{one.project}</Name></span>}</span>
            {sure === one.id
              ? <button type="button" className="btn sm danger" disabled={remove.isPending} onClick={() => remove.mutate(one.id, { onSuccess: () => setSure(null) })}>Remove <Name>{one.name}</Name></button>
              : <button type="button" className="btn sm bad" onClick={() => setSure(one.id)}>Remove</button>}
          </div>
        ))}
        {remove.error && <div className="fault" role="alert" style={{ margin: 0 }}>{remove.error.message}</div>}
        <div style={{ display: "flex", justifyContent: "flex-end" }}><button type="button" className="btn" onClick={onClose} data-autofocus>Done</button></div>
      </div>
    </Modal>
  );
}
