export const func = () => ({ pass: false, score: 0.6, reason: "the default name" });
export const other = () => ({ pass: true, score: 0.7, reason: "another" });
