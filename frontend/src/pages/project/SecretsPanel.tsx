import { useState } from "react";
import { Link } from "react-router";
import { useRemoveSecret, useSecrets, useSetSecret } from "../../api/projectHooks";
import { rowsOf } from "../../api/pages";
import type { ProjectDetail, Secret } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { FormDialog } from "../../components/FormDialog";
import { Icon } from "../../components/icons";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Text } from "../../components/TextField";
import { useNow } from "../../lib/clock";
import { moment } from "../../lib/format";
import { problemsOf } from "../../lib/problem";

/** Names of the project's secrets: values go in and never come out. */
export function SecretsPanel({ project, manages }: { project: ProjectDetail; manages: boolean }) {
  const query = useSecrets(project.key);
  const [setting, setSetting] = useState<Secret | "new" | null>(null);
  const [removing, setRemoving] = useState<Secret | null>(null);
  const now = useNow(30_000);
  return (
    <>
      <Panel title="Secrets" meta="names only; values are never shown" right={manages && <button type="button" className="btn sm" onClick={() => setSetting("new")}><Icon name="plus" size={12} />New secret</button>}>
        <Loadable query={query} what="The list of secrets" skeleton={<Skeleton height={26} count={2} />}>
          {(data) => rowsOf(data).length === 0 ? <p className="empty">There are none.</p> : (
            <div className="tw" tabIndex={0}>
              <table className="t cards">
                <thead><tr><th scope="col">Name</th><th scope="col">What it is</th><th scope="col">Jobs that use it</th><th scope="col" className="ra">Changed</th>{manages && <th scope="col"><span className="vh">Action</span></th>}</tr></thead>
                <tbody>
                  {rowsOf(data).map((secret) => (
                    <tr key={secret.name}>
                      <td className="mono wide" style={{ fontWeight: 500 }}>{secret.name}</td>
                      <td className="wide">{secret.description || <span className="sub" style={{ margin: 0 }}>not said</span>}</td>
                      <td data-l="Jobs that use it">{secret.used_by.length === 0 ? <span className="sub" style={{ margin: 0 }}>none</span> : secret.used_by.map((job, i) => <span key={job}>{i > 0 && ", "}<Link className="link" to={`/jobs/${job}`}>{job}</Link></span>)}</td>
                      <td className="ra" data-l="Changed" title={secret.changed_by ?? undefined}>{moment(new Date(secret.changed_at), now)}</td>
                      {manages && <td className="ra acts"><button type="button" className="btn sm" aria-label={`Replace ${secret.name}`} onClick={() => setSetting(secret)}>Replace</button>{" "}<button type="button" className="btn sm bad" aria-label={`Remove ${secret.name}`} onClick={() => setRemoving(secret)}>Remove</button></td>}
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Loadable>
        <More query={query} label="More secrets" />
      </Panel>
      {setting !== null && <SecretForm project={project} secret={setting === "new" ? null : setting} onClose={() => setSetting(null)} />}
      {removing && <RemoveDialog project={project} secret={removing} onClose={() => setRemoving(null)} />}
    </>
  );
}

function SecretForm({ project, secret, onClose }: { project: ProjectDetail; secret: Secret | null; onClose: () => void }) {
  const set = useSetSecret(project.key);
  const [name, setName] = useState(secret?.name ?? "");
  const [value, setValue] = useState("");
  const [description, setDescription] = useState(secret?.description ?? "");
  const { at, rest } = problemsOf(set.error, ["secret", "value", "description"]);
  const submit = () => set.mutate({ name: name.trim(), value, description: description.trim() }, { onSuccess: onClose });
  return (
    <FormDialog title={secret ? `Replace ${secret.name}` : "New secret"} fault={rest} busy={set.isPending} onSubmit={submit} onClose={onClose}>
      <Text label="Name" value={name} onChange={setName} required disabled={secret !== null} placeholder="HF_TOKEN" error={at.secret} />
      <Text label="Value" type="password" value={value} onChange={setValue} required error={at.value} />
      <Text label="What it is" value={description} onChange={setDescription} error={at.description} />
      <p className="sub" style={{ flexBasis: "100%" }}>It is kept encrypted. Launches from now on get this value; what runs keeps the one that it has.</p>
    </FormDialog>
  );
}

function RemoveDialog({ project, secret, onClose }: { project: ProjectDetail; secret: Secret; onClose: () => void }) {
  const remove = useRemoveSecret(project.key);
  const used = secret.used_by.length > 0 ? ` Jobs ${secret.used_by.join(", ")} ask for it.` : "";
  return (
    <AskDialog
      title={`Remove ${secret.name}?`} keep="Keep it" action="Remove the secret" error={remove.error} busy={remove.isPending}
      onDo={() => remove.mutate(secret.name, { onSuccess: onClose })} onClose={onClose}
    >
      Its value is gone at once, and a later launch that needs it fails and says so.{used}
    </AskDialog>
  );
}
