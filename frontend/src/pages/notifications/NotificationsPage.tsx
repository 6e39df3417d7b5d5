import { useState } from "react";
import { useDestinations, useRotateDestination } from "../../api/noticeHooks";
import type { Destination, Session } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { OnceShown } from "../../components/OnceShown";
import { Sentence } from "../../components/Sentence";
import { Icon } from "../../components/icons";
import { count } from "../../lib/format";
import { noticeSentence } from "./notices";
import { TopBar } from "../../shell/TopBar";
import { DestinationForm } from "./DestinationForm";
import { DestinationRow } from "./DestinationRow";
import { RemoveDialog } from "./RemoveDialog";
import { Name } from "../../components/Name";

const SIGNED = "signs with this secret.";

/** Where one is told what, and what became of it. */
export default function NotificationsPage({ session }: { session: Session }) {
  const query = useDestinations();
  const rotate = useRotateDestination();
  const [form, setForm] = useState<Destination | "new" | null>(null);
  const [removing, setRemoving] = useState<Destination | null>(null);
  const [made, setMade] = useState<{ name: string; secret: string } | null>(null);
  const rows = query.data?.results;
  const isAdmin = session.user?.is_admin ?? false;
  const onRotate = (row: Destination) => rotate.mutate(row.id, { onSuccess: ({ secret }) => setMade({ name: row.name, secret }) });
  return (
    <>
      <TopBar title="Notifications" />
      <div className="page" style={{ maxWidth: 1080 }}>
        {rows ? <Sentence parts={noticeSentence(rows, query.data?.email_available ?? false)} /> : <h1 className="say"><b>Notifications</b> tell you of your jobs by webhook, chat or mail.</h1>}
        {made && <OnceShown label="The secret of the webhook" secret={made.secret} onDone={() => setMade(null)}><b style={{ fontWeight: 600 }}><Name>{made.name}</Name></b> {SIGNED}</OnceShown>}
        {rotate.error && <div className="fault" role="alert" style={{ margin: 0 }}>{rotate.error.message}</div>}
        <Panel
          title="Your destinations" meta={rows && rows.length > 0 && count(rows.length, "destination")}
          right={<button type="button" className="btn sm" disabled={!rows} onClick={() => setForm("new")}><Icon name="plus" size={12} />New destination</button>}
        >
          <Loadable query={query} what="The list of destinations" skeleton={<Skeleton height={26} count={3} />}>
            {(found) => found.results.length === 0 ? <p className="empty">You have none. Add one, and press Test to see that it works.</p> : (
              <div className="tw" tabIndex={0}>
                <table className="t cards">
                  <thead><tr><th scope="col">Destination</th><th scope="col">Address</th><th scope="col">Tells when</th><th scope="col">State</th><th scope="col"><span className="vh">Action</span></th></tr></thead>
                  <tbody>
                    {found.results.map((row) => <DestinationRow key={row.id} row={row} onEdit={() => setForm(row)} onRotate={() => onRotate(row)} onRemove={() => setRemoving(row)} />)}
                  </tbody>
                </table>
              </div>
            )}
          </Loadable>
        </Panel>
        {form !== null && (
          <DestinationForm
            key={form === "new" ? "" : form.id} row={form === "new" ? null : form} projects={session.projects} isAdmin={isAdmin}
            email={query.data?.email_available ? (session.user?.email ?? "") : ""} onMade={setMade} onClose={() => setForm(null)}
          />
        )}
        <RemoveDialog row={removing} onClose={() => setRemoving(null)} />
      </div>
    </>
  );
}
