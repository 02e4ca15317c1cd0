// Looks up names that come from data or the URL. `object[name]` also finds `constructor` and other inherited properties.

export function own(object, name) {
  return object && Object.hasOwn(object, name) ? object[name] : undefined;
}
