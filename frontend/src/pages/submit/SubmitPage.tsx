import { lazy, Suspense, useEffect, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { useJob, useSubmit } from "../../api/hooks";
import { ApiError } from "../../api/client";
import type { JobDetail, Session } from "../../api/types";
import { Fault, Skeleton } from "../../components/Panel";
import { SaveTemplate } from "../../components/SaveTemplate";
import { diff } from "../../lib/job/jobActions";
import { parseYaml, toYaml } from "../../lib/jobfile/jobFile";
import { TopBar } from "../../shell/TopBar";
import { Begin } from "./Begin";
import { errorAt } from "./fields";
import { useDraft } from "./useDraft";
import { FormTab } from "./FormTab";
import { Preview } from "./Preview";
import { StartFrom } from "./StartFrom";
import css from "./submit.module.css";

const IS_MAC = /Mac|iPhone|iPad/.test(navigator.userAgent);
const YamlTab = lazy(() => import("./YamlTab"));

export default function SubmitPage({ session }: { session: Session }) {
  const from = useSearchParams()[0].get("from");
  return from ? <Again key={from} from={from} session={session} /> : <SubmitForm session={session} />;
}

/** The job's own file to begin with: what is sent is the difference. */
function Again({ from, session }: { from: string; session: Session }) {
  const query = useJob(from);
  const [job, setJob] = useState(query.data);
  if (!job && query.data) setJob(query.data);
  if (job) return <SubmitForm session={session} again={job} />;
  return <><TopBar title="Resubmit job" /><div className="page">{query.error ? <Fault what="The job" query={query} /> : <Skeleton height={420} />}</div></>;
}

function SubmitForm({ session, again }: { session: Session; again?: JobDetail }) {
  const draft = useDraft(session, again?.spec);
  const [tab, setTab] = useState<"form" | "yaml">("form");
  const [copied, setCopied] = useState(false);
  const [saving, setSaving] = useState(false);
  const submit = useSubmit();
  const navigate = useNavigate();
  const errors = submit.error instanceof ApiError ? submit.error.errors : [];
  const parsed = tab === "yaml" ? parseYaml(draft.text) : null;
  const send = () => {
    const whole = tab === "yaml" ? draft.text : draft.file;
    const body = again ? diff(again.spec, (tab === "yaml" ? parsed?.file : null) ?? draft.file) : whole;
    submit.mutate({ body, key: draft.key, again: again?.number }, { onSuccess: (job) => { draft.clear(); void navigate(job.array && job.array.size > 1 ? `/jobs?array=${job.array.number}` : `/jobs/${job.number}`); } });
  };
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !submit.isPending && !saving) {
        event.preventDefault();
        send();
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  });
  const copy = () => {
    void navigator.clipboard?.writeText(tab === "yaml" ? draft.text : toYaml(draft.file)).then(() => setCopied(true));
  };
  const wrong = (parsed?.problems.length ?? 0) > 0;
  return (
    <>
      <TopBar title={again ? `Resubmit ${again.number}` : "Submit job"} />
      <div className="page">
        <h1 className="vh">{again ? `Submit job ${again.number} once more` : "Submit a job"}</h1>
        <div className={`cols ${css.body}`}>
          <form className="panel" aria-label="Job" onSubmit={(event) => { event.preventDefault(); send(); }} noValidate>
            <div className={css.head}>
              <div className="seg" role="tablist" aria-label="How to write the job">
                <button type="button" role="tab" aria-selected={tab === "form"} onClick={() => setTab("form")}>Form</button>
                <button type="button" role="tab" aria-selected={tab === "yaml"} onClick={() => { draft.showText(); setTab("yaml"); }}>YAML</button>
              </div>
              <span className={css.begin}>
                {!again && <StartFrom draft={draft} session={session} />}
                <button type="button" className="btn sm" onClick={draft.clear}>Start afresh</button>
              </span>
            </div>
            {again && <Begin job={again} draft={draft} error={errorAt(errors, "resume_from")} />}
            {submit.error && <General error={submit.error} errors={errors} tab={tab} />}
            {tab === "form" ? (
              <FormTab key={draft.begun} draft={draft} errors={errors} />
            ) : (
              <Suspense fallback={<div className="pb"><Skeleton height={420} /></div>}>
                <YamlTab text={draft.text} onChange={draft.setText} parsed={parsed ?? parseYaml(draft.text)} errors={errors} />
              </Suspense>
            )}
            <div className={css.foot}>
              <span className="sub grow">{copied ? "Copied" : "The draft is kept in this browser tab."}</span>
              <button type="button" className="btn" onClick={() => setSaving(true)} disabled={wrong}>Save as template</button>
              <button type="button" className="btn" onClick={copy}>Copy YAML</button>
              <button type="submit" className="btn pri" disabled={submit.isPending || wrong} title="Ctrl Enter">
                {submit.isPending ? "Submitting" : "Submit job"} <kbd>{IS_MAC ? "⌘↵" : "Ctrl ↵"}</kbd>
              </button>
            </div>
          </form>
          <Preview file={draft.file} />
        </div>
        {saving && <SaveTemplate file={draft.file} name={typeof draft.file.name === "string" ? draft.file.name : ""} onClose={() => setSaving(false)} />}
      </div>
    </>
  );
}

/** What is wrong with no field of the form to stand at. */
function General({ error, errors, tab }: { error: Error; errors: { field: string; message: string }[]; tab: string }) {
  const where = tab === "form" ? "It is marked below." : "It is marked at its line.";
  const words = errors.length === 0 ? error.message : `${error.message.replace(/\.?$/, ".")} ${where}`;
  return <div className="fault" role="alert" style={{ marginTop: 12 }}>{words}</div>;
}
