/** Names in the addresses of pages that changed: the old ones, in bookmarks and links, lead to the same. */

/** Pages, old to new. */
export const OLD_PAGES: Readonly<Record<string, string>> = { "/admin/rates": "/admin/prices" };

/** Parameters of the list of jobs, and of its saved views, old to new. */
export const OLD_PARAMETERS: Readonly<Record<string, string>> = { held: "on_hold" };

/** The same parameters under their present names; the new name counts where both are given. */
export function withNewNames(params: URLSearchParams): URLSearchParams {
  const renamed = new URLSearchParams();
  for (const [name, value] of params) {
    const now = OLD_PARAMETERS[name];
    if (now === undefined) renamed.append(name, value);
    else if (!params.has(now)) renamed.append(now, value);
  }
  return renamed;
}
