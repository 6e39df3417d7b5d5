import { Menu, Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useChangeView, useCreateView, useRemoveView, useViews } from "../../api/jobListHooks";
import type { JobColumn, SavedView } from "../../api/types";
import { GROUPS, paramsOfView, showsView, viewBody, type JobFilters } from "./jobFilters";
import css from "./jobs.module.css";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

interface Props {
  params: URLSearchParams;
  filters: JobFilters;
  /** Those shown. */
  columns: JobColumn[];
  onState: (state: string) => void;
  onView: (params: URLSearchParams) => void;
}

type Asking = { kind: "save" } | { kind: "rename" | "remove"; view: SavedView } | null;

/** States, and one's own saved views; the address says which one it is. */
export function ViewTabs({ params, filters, columns, onState, onView }: Props) {
  const views = useViews().data?.results ?? [];
  const [asking, setAsking] = useState<Asking>(null);
  const current = views.find((view) => showsView(params, view));
  const close = () => setAsking(null);
  return (
    <div className={css.views}>
      <div className="seg" role="group" aria-label="State" tabIndex={0}>
        {GROUPS.map((group) => <button key={group.key} type="button" aria-pressed={group.key === filters.state && !current} onClick={() => onState(group.key)}>{group.label}</button>)}
      </div>
      {views.length > 0 && (
        <div className="seg" role="group" aria-label="Saved views" tabIndex={0}>
          {views.map((view) => <button key={view.id} type="button" aria-pressed={view === current} onClick={() => onView(paramsOfView(view))}><Name>{view.name}</Name></button>)}
        </div>
      )}
      {current ? (
        <Menu position="bottom-start" width={200}>
          <Menu.Target><button type="button" className="btn sm">View</button></Menu.Target>
          <Menu.Dropdown>
            <Menu.Label><Name>{current.name}</Name></Menu.Label>
            <Menu.Item onClick={() => setAsking({ kind: "rename", view: current })}>Rename</Menu.Item>
            <Menu.Item onClick={() => setAsking({ kind: "save" })}>Save under another name</Menu.Item>
            <Menu.Item onClick={() => setAsking({ kind: "remove", view: current })}>Remove</Menu.Item>
          </Menu.Dropdown>
        </Menu>
      ) : <button type="button" className="btn sm" onClick={() => setAsking({ kind: "save" })}>Save view</button>}
      {asking?.kind === "save" && <SaveDialog filters={filters} columns={columns} views={views} onClose={close} onSaved={onView} />}
      {asking?.kind === "rename" && <RenameDialog view={asking.view} onClose={close} />}
      {asking?.kind === "remove" && <RemoveDialog view={asking.view} onClose={close} />}
    </div>
  );
}

interface NameProps {
  title: string;
  value: string;
  onChange: (value: string) => void;
  note?: string | undefined;
  error: Error | null;
  pending: boolean;
  onSubmit: () => void;
  onClose: () => void;
}

function NameDialog({ title, value, onChange, note, error, pending, onSubmit, onClose }: NameProps) {
  const send = (event: FormEvent) => {
    event.preventDefault();
    onSubmit();
  };
  return (
    <Modal opened onClose={onClose} title={title} size={400} closeButtonProps={{ "aria-label": "Close" }}>
      <form className={css.dialog} onSubmit={send}>
        <div className="f">
          <label htmlFor="view-name">Name</label>
          <input id="view-name" className="in" required maxLength={60} value={value} onChange={(event) => onChange(event.target.value)} data-autofocus />
          {note && <div className="h">{note}</div>}
        </div>
        {error && <div className="fault" role="alert" style={{ margin: 0 }}>{error.message}</div>}
        <div className={css.end}>
          <button type="button" className="btn" onClick={onClose}>Leave it</button>
          <button type="submit" className="btn pri" disabled={pending || value.trim() === ""}>{pending ? "Saving" : "Save"}</button>
        </div>
      </form>
    </Modal>
  );
}

function SaveDialog({ filters, columns, views, onClose, onSaved }: { filters: JobFilters; columns: JobColumn[]; views: SavedView[]; onClose: () => void; onSaved: (params: URLSearchParams) => void }) {
  const create = useCreateView();
  const change = useChangeView();
  const [name, setName] = useState("");
  const same = views.find((view) => view.name === name.trim());
  const save = () => {
    const body = viewBody(name.trim(), filters, columns);
    const onSuccess = (view: SavedView) => { onClose(); onSaved(paramsOfView(view)); };
    if (same) change.mutate({ id: same.id, body }, { onSuccess });
    else create.mutate(body, { onSuccess });
  };
  const note = same ? `It replaces your view ${isolated(same.name)}.` : "Filters, order and columns as they are now. Only you have it, in every browser.";
  return <NameDialog title="Save this view" value={name} onChange={setName} note={note} error={create.error ?? change.error} pending={create.isPending || change.isPending} onSubmit={save} onClose={onClose} />;
}

function RenameDialog({ view, onClose }: { view: SavedView; onClose: () => void }) {
  const change = useChangeView();
  const [name, setName] = useState(view.name);
  const { filters, ordering, columns } = view;
  const save = () => change.mutate({ id: view.id, body: { name: name.trim(), filters, ordering, columns } }, { onSuccess: onClose });
  return <NameDialog title={`Rename ${isolated(view.name)}`} value={name} onChange={setName} error={change.error} pending={change.isPending} onSubmit={save} onClose={onClose} />;
}

function RemoveDialog({ view, onClose }: { view: SavedView; onClose: () => void }) {
  const remove = useRemoveView();
  return (
    <Modal opened onClose={onClose} title={`Remove the view ${isolated(view.name)}?`} size={400} closeButtonProps={{ "aria-label": "Close" }}>
      <div className={css.dialog}>
        <p>The name and its filters are forgotten. No job is touched.</p>
        {remove.error && <div className="fault" role="alert" style={{ margin: 0 }}>{remove.error.message}</div>}
        <div className={css.end}>
          <button type="button" className="btn" onClick={onClose} data-autofocus>Keep it</button>
          <button type="button" className="btn danger" disabled={remove.isPending} onClick={() => remove.mutate(view.id, { onSuccess: onClose })}>Remove the view</button>
        </div>
      </div>
    </Modal>
  );
}
