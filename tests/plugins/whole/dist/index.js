export const WholeBadge = () => "whole";
export const WholeFrame = (inner) => `[${inner}]`;
export const WholeTitle = (title) => title.toUpperCase();
