// An address that names something folded away opens what it lies in. Some browsers do so by themselves.
const openTarget = () => {
  const named = document.getElementById(location.hash.slice(1));
  let fold = named?.parentElement?.closest("details");
  if (!fold) return;
  for (; fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  named.scrollIntoView();
};
addEventListener("hashchange", openTarget);
document.addEventListener("DOMContentLoaded", openTarget);
