import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { BrowserRouter, Navigate, Route, Routes } from "react-router";
import { ApiError } from "./api/client";
import { useSession } from "./api/hooks";
import { Fault } from "./components/Panel";
import { createLiveStore, LiveContext } from "./lib/live/liveContext";
import { OLD_PAGES } from "./lib/renamed";
import { Invitation } from "./pages/invitation/Invitation";
import { Overview } from "./pages/overview/Overview";
import { SignIn } from "./pages/signin/SignIn";
import { Shell } from "./shell/Shell";
import { resolver, theme } from "./theme/theme";

const JobPage = lazy(() => import("./pages/job/JobPage"));
const ComparePage = lazy(() => import("./pages/compare/ComparePage"));
const JobsPage = lazy(() => import("./pages/jobs/JobsPage"));
const SubmitPage = lazy(() => import("./pages/submit/SubmitPage"));
const PolicyPage = lazy(() => import("./pages/policy/PolicyPage"));
const TokensPage = lazy(() => import("./pages/tokens/TokensPage"));
const NotificationsPage = lazy(() => import("./pages/notifications/NotificationsPage"));
const SharesPage = lazy(() => import("./pages/shares/SharesPage"));
const FairnessPage = lazy(() => import("./pages/fairness/FairnessPage"));
const LimitsPage = lazy(() => import("./pages/limits/LimitsPage"));
const UsagePage = lazy(() => import("./pages/usage/UsagePage"));
const ClusterPage = lazy(() => import("./pages/cluster/ClusterPage"));
const NodePage = lazy(() => import("./pages/cluster/NodePage"));
const ThroughputPage = lazy(() => import("./pages/throughput/ThroughputPage"));
const LabPage = lazy(() => import("./pages/lab/LabPage"));
const NewSimulationPage = lazy(() => import("./pages/lab/NewSimulationPage"));
const RolloutPage = lazy(() => import("./pages/lab/RolloutPage"));
const RoundsPage = lazy(() => import("./pages/lab/RoundsPage"));
const RoundPage = lazy(() => import("./pages/lab/RoundPage"));
const NodeWhatIfPage = lazy(() => import("./pages/lab/NodeWhatIfPage"));
const SimulationPage = lazy(() => import("./pages/lab/SimulationPage"));
const ProjectsPage = lazy(() => import("./pages/projects/ProjectsPage"));
const ProjectPage = lazy(() => import("./pages/project/ProjectPage"));
const PeoplePage = lazy(() => import("./pages/people/PeoplePage"));
const PricesPage = lazy(() => import("./pages/prices/PricesPage"));
const AuditPage = lazy(() => import("./pages/audit/AuditPage"));
const NotFound = lazy(() => import("./pages/NotFound"));

const refused = (error: unknown) => error instanceof ApiError && error.status >= 400 && error.status < 500;

function createClient(): QueryClient {
  return new QueryClient({
    defaultOptions: { queries: { retry: (count, error) => !refused(error) && count < 2, refetchOnWindowFocus: false } },
  });
}

function Pages() {
  const session = useSession();
  if (session.error && !session.data) {
    return (
      <main style={{ padding: 40 }}>
        <Fault what="The portal" query={session} />
      </main>
    );
  }
  if (!session.data) return null;
  if (window.location.pathname === "/invitation") return <Invitation session={session.data} />;
  if (!session.data.user) return <SignIn session={session.data} />;
  return (
    <Shell session={session.data}>
      <Suspense fallback={null}>
        <Routes>
          <Route path="/" element={<Overview session={session.data} />} />
          <Route path="/signin" element={<Navigate to="/" replace />} />
          <Route path="/jobs" element={<JobsPage />} />
          <Route path="/jobs/compare" element={<ComparePage />} />
          <Route path="/jobs/:number" element={<JobPage />} />
          <Route path="/submit" element={<SubmitPage session={session.data} />} />
          <Route path="/projects" element={<ProjectsPage session={session.data} />} />
          <Route path="/projects/:key" element={<ProjectPage session={session.data} />} />
          <Route path="/shares" element={<SharesPage session={session.data} />} />
          <Route path="/fairness" element={<FairnessPage />} />
          <Route path="/limits" element={<LimitsPage session={session.data} />} />
          <Route path="/usage" element={<UsagePage session={session.data} />} />
          <Route path="/cluster" element={<ClusterPage session={session.data} />} />
          <Route path="/cluster/nodes/:name" element={<NodePage session={session.data} />} />
          <Route path="/cluster/throughput" element={<ThroughputPage />} />
          <Route path="/lab" element={<LabPage admin={session.data.user.is_admin} />} />
          <Route path="/lab/new" element={<NewSimulationPage admin={session.data.user.is_admin} />} />
          <Route path="/lab/:id" element={<SimulationPage admin={session.data.user.is_admin} />} />
          <Route path="/lab/what-if" element={<NodeWhatIfPage session={session.data} />} />
          <Route path="/tokens" element={<TokensPage projects={session.data.projects} />} />
          <Route path="/notifications" element={<NotificationsPage session={session.data} />} />
          {session.data.user.is_admin && (
            <>
              <Route path="/lab/rounds" element={<RoundsPage />} />
              <Route path="/lab/rounds/:number" element={<RoundPage />} />
              <Route path="/policy" element={<PolicyPage />} />
              <Route path="/lab/rollouts/:id" element={<RolloutPage />} />
              <Route path="/admin/people" element={<PeoplePage session={session.data} />} />
              <Route path="/admin/prices" element={<PricesPage session={session.data} />} />
              <Route path="/admin/audit" element={<AuditPage />} />
            </>
          )}
          {Object.entries(OLD_PAGES).map(([old, now]) => <Route key={old} path={old} element={<Navigate to={now} replace />} />)}
          <Route path="*" element={<NotFound />} />
        </Routes>
      </Suspense>
    </Shell>
  );
}

export function App() {
  const [client] = useState(createClient);
  const [live] = useState(() =>
    createLiveStore((error) => {
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) void client.invalidateQueries({ queryKey: ["session"] });
    }),
  );
  return (
    <MantineProvider theme={theme} cssVariablesResolver={resolver} defaultColorScheme="auto">
      <QueryClientProvider client={client}>
        <LiveContext value={live}>
          <BrowserRouter>
            <Pages />
          </BrowserRouter>
        </LiveContext>
      </QueryClientProvider>
    </MantineProvider>
  );
}
