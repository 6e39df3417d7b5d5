import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, get, send } from "./client";
import { usePages } from "./pages";
import type { ApiToken, Invitation, Member, NewInvitation, NewToken, Project, ProjectDetail, Role, Secret, ServiceAccount, Storage } from "./types";

const at = (key: string, ...more: (string | number)[]) => ["projects", key, ...more].map(encodeURIComponent).join("/");
const MOST = 200;

export const useProjectPages = (filter: { search: string; archived: boolean }, enabled = true) =>
  usePages<Project>("projects", { ...filter, limit: MOST }, { enabled, everyMs: 30_000 });

export function useProject(key: string) {
  return useQuery({ queryKey: ["project", key], queryFn: ({ signal }) => get<ProjectDetail>(at(key), {}, signal), refetchInterval: 15_000 });
}

export const useMembers = (key: string) => usePages<Member>(at(key, "members"), {});
export const useInvitations = (key: string) => usePages<Invitation>(at(key, "invitations"), { limit: 20 });
export const useServiceAccounts = (key: string) => usePages<ServiceAccount>(at(key, "service-accounts"), {});
export const useServiceTokens = (key: string, account: number) => usePages<ApiToken>(at(key, "service-accounts", account, "tokens"), {});
export const useSecrets = (key: string) => usePages<Secret>(at(key, "secrets"), {});
export function useStorage(key: string) {
  return useQuery({ queryKey: ["storage", key], queryFn: ({ signal }) => get<Storage>(at(key, "storage"), {}, signal), staleTime: 60_000 });
}

/** A change of a project or of what is in it: lists and the project are fetched again. */
function useProjectChange<T, R>(change: (input: T) => Promise<R>, also: string[] = []) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all(["pages", "project", ...also].map((name) => client.invalidateQueries({ queryKey: [name] }))),
  });
}

const NAMED = ["projects", "session"];
export interface ProjectWish {
  key: string;
  name: string;
  parent: string | null;
}
export interface ProjectPatch {
  name?: string;
  share_weight?: number;
  inner_rule?: ProjectDetail["inner_rule"];
  priority?: number | null;
  cluster_shares?: Record<string, number | null>;
  slurm?: Partial<ProjectDetail["slurm"]>;
}
export const useCreateProject = () => useProjectChange((wish: ProjectWish) => send<ProjectDetail>("POST", "projects", wish), NAMED);
export const useChangeProject = (key: string) => useProjectChange((patch: ProjectPatch) => send<ProjectDetail>("PATCH", at(key), patch), NAMED);
export const useArchiveProject = (key: string) => useProjectChange((archive: boolean) => send<ProjectDetail>("POST", at(key, archive ? "archive" : "restore")), NAMED);

export interface MemberWish {
  email: string;
  role: Role;
}
/** Left out unless somebody confirmed that the account is whose address it has. */
interface Confirmation {
  confirm_unproved?: true;
}
/** Whoever has an account is in at once, and null comes back; whoever has none is invited. */
export const useAddMember = (key: string) => useProjectChange(async ({ email, role, ...confirmation }: MemberWish & Confirmation): Promise<NewInvitation | null> => {
  const wish: MemberWish = { email, role };
  try {
    await send<Member>("POST", at(key, "members"), { ...wish, ...confirmation });
    return null;
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 400 || !error.errors.some((one) => one.field === "email")) throw error;
    return await send<NewInvitation>("POST", at(key, "invitations"), wish);
  }
});
export const useChangeMember = (key: string) => useProjectChange(({ id, ...change }: { id: number; role: Role } & Confirmation) => send<Member>("PATCH", at(key, "members", id), change));
export const useRemoveMember = (key: string) => useProjectChange((id: number) => send<void>("DELETE", at(key, "members", id)));
export const useInvite = () => useProjectChange(({ project, ...wish }: MemberWish & { project: string }) => send<NewInvitation>("POST", at(project, "invitations"), wish));
export const useWithdraw = (key: string) => useProjectChange((id: number) => send<void>("DELETE", at(key, "invitations", id)));

export const useAddAccount = (key: string) => useProjectChange((wish: { name: string; role: Role }) => send<ServiceAccount>("POST", at(key, "service-accounts"), wish));
export const useChangeAccount = (key: string) =>
  useProjectChange(({ id, ...patch }: { id: number; role?: Role; is_active?: boolean }) => send<ServiceAccount>("PATCH", at(key, "service-accounts", id), patch));
export interface ServiceTokenWish {
  name: string;
  scopes: ApiToken["scopes"];
  expires_in_days: number;
}
export const useMakeServiceToken = (key: string, account: number) =>
  useProjectChange((wish: ServiceTokenWish) => send<NewToken>("POST", at(key, "service-accounts", account, "tokens"), wish));
export const useRotateServiceToken = () => useProjectChange((id: number) => send<NewToken>("POST", `tokens/${id}/rotate`, {}));
export const useRevokeServiceToken = () => useProjectChange((id: number) => send<void>("DELETE", `tokens/${id}`));

export const useSetSecret = (key: string) =>
  useProjectChange(({ name, ...wish }: { name: string; value: string; description?: string }) => send<Secret>("PUT", at(key, "secrets", name), wish));
export const useRemoveSecret = (key: string) => useProjectChange((name: string) => send<void>("DELETE", at(key, "secrets", name)));
