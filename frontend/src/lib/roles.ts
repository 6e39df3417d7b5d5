import type { Role } from "../api/types";

/** What each role may do, as fields offer it. */
export const ROLES: [Role, string][] = [
  ["viewer", "viewer: reads"],
  ["member", "member: submits and changes jobs"],
  ["manager", "manager: also the project and its members"],
];
