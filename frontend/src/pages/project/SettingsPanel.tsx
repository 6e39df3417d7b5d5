import { useState, type FormEvent } from "react";
import { useSession } from "../../api/hooks";
import { useArchiveProject, useChangeProject } from "../../api/projectHooks";
import type { ProjectDetail } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { Panel } from "../../components/Panel";
import { Choice, Text } from "../../components/TextField";
import { count, moment } from "../../lib/format";
import { problemsOf } from "../../lib/problem";
import { isolated } from "../../lib/isolated";
import { patchOf, settingsOf, SLURM_NAMES } from "./projectPatch";

/** What managers change of a project; its weight takes a manager of the one above, its priority an administrator. */
export function SettingsPanel({ project, isAdmin }: { project: ProjectDetail; isAdmin: boolean }) {
  const [archiving, setArchiving] = useState(false);
  const restore = useArchiveProject(project.key);
  const archived = project.archived_at !== null;
  return (
    <Panel title="Settings">
      {archived ? (
        <div className="pb" style={{ display: "flex", gap: 12, alignItems: "center", flexWrap: "wrap" }}>
          <p className="grow">It was archived {moment(new Date(project.archived_at ?? ""), new Date())}. Restored, it and all below it take in jobs and changes again.</p>
          <button type="button" className="btn" disabled={restore.isPending} onClick={() => restore.mutate(false)}>Restore the project</button>
        </div>
      ) : (
        <>
          <Fields project={project} isAdmin={isAdmin} />
          <div className="block" style={{ display: "flex", gap: 12, alignItems: "center", flexWrap: "wrap" }}>
            <p className="grow sub">Archived, it is read only: what was in it stays, nothing new is taken in, here and below. It can be restored.</p>
            <button type="button" className="btn bad" onClick={() => setArchiving(true)}>Archive the project</button>
          </div>
        </>
      )}
      {restore.error && <div className="fault" role="alert">{restore.error.message}</div>}
      {archiving && <ArchiveDialog project={project} onClose={() => setArchiving(false)} />}
    </Panel>
  );
}

const IN_SLURM = { account: "Account in Slurm", qos: "QOS in Slurm", partition: "Partition in Slurm", wckey: "WCKey in Slurm", reservation: "Reservation in Slurm" };

function Fields({ project, isAdmin }: { project: ProjectDetail; isAdmin: boolean }) {
  const change = useChangeProject(project.key);
  const known = useSession().data?.clusters ?? [];
  const clusters = known.length > 1 ? known.map((one) => one.name) : [];
  // What it was when the form was filled in: a change by somebody else since then is not sent back.
  const [before, setBefore] = useState(project);
  const [settings, setSettings] = useState(() => settingsOf(project));
  const patch = patchOf(before, settings);
  if (before !== project && [patch, patchOf(project, settings)].some((one) => Object.keys(one).length === 0)) {
    setBefore(project);
    setSettings(settingsOf(project));
  }
  const { at, rest } = problemsOf(change.error, ["name", "share_weight", "inner_rule", "priority", ...clusters.map((name) => `cluster_shares.${name}`), ...SLURM_NAMES.map((name) => `slurm.${name}`)]);
  const inSlurm = known.some((one) => one.engine === "Slurm");
  const managesAbove = isAdmin || project.path.at(-1)?.role === "manager";
  const set = (part: Partial<typeof settings>) => setSettings({ ...settings, ...part });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    change.mutate(patch, { onSuccess: (now) => setSettings(settingsOf(now)) });
  };
  return (
    <form className="pb" onSubmit={submit} style={{ display: "flex", gap: 12, alignItems: "flex-end", flexWrap: "wrap" }}>
      <Text label="Name" value={settings.name} onChange={(name) => set({ name })} required error={at.name} />
      <Text label="Weight against its siblings" value={settings.weight} onChange={(weight) => set({ weight })} decimal required disabled={!managesAbove} error={at.share_weight} />
      {clusters.map((name) => (
        <Text
          key={name} label={`Weight on ${name}`} value={settings.shares[name] ?? ""} onChange={(weight) => set({ shares: { ...settings.shares, [name]: weight } })}
          decimal disabled={!managesAbove} placeholder={settings.weight} error={at[`cluster_shares.${name}`]}
        />
      ))}
      <Choice label="Its own jobs share by" value={settings.rule} onChange={(rule) => set({ rule: rule as typeof settings.rule })} options={[["fairness", "fairness"], ["fifo", "first in, first out"]]} error={at.inner_rule} />
      <Text label="Priority of its jobs" value={settings.priority} onChange={(priority) => set({ priority })} number disabled={!isAdmin} placeholder="as the project above" error={at.priority} />
      {inSlurm && SLURM_NAMES.map((name) => (
        <Text
          key={name} label={IN_SLURM[name]} value={settings.slurm[name]} onChange={(value) => set({ slurm: { ...settings.slurm, [name]: value } })}
          disabled={!isAdmin} placeholder={project.slurm_above[name] ?? "as the cluster"} error={at[`slurm.${name}`]}
        />
      ))}
      <button type="submit" className="btn pri" style={{ height: 32 }} disabled={change.isPending || Object.keys(patch).length === 0}>Save</button>
      {rest && <div className="fault" role="alert" style={{ margin: 0, flexBasis: "100%" }}>{rest}</div>}
      {change.isSuccess && Object.keys(patch).length === 0 && <span className="sub" role="status" style={{ flexBasis: "100%" }}>Saved.</span>}
    </form>
  );
}

function ArchiveDialog({ project, onClose }: { project: ProjectDetail; onClose: () => void }) {
  const archive = useArchiveProject(project.key);
  const live = project.with_below.jobs_running + project.with_below.jobs_queued;
  return (
    <AskDialog
      title={`Archive ${isolated(project.name)}?`} keep="Keep it in use" action="Archive the project" error={archive.error} busy={archive.isPending}
      onDo={() => archive.mutate(true, { onSuccess: onClose })} onClose={onClose}
    >
      {live > 0 && <b>{count(live, "job")} {live === 1 ? "is" : "are"} queued or running in it or below: they have to end first, or be cancelled. </b>}
      Nothing new can be submitted, here and in all projects below. Jobs, costs and files stay to be read, and it can be restored.
    </AskDialog>
  );
}
