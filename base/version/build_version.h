// The version that this build reports.
#pragma once

namespace plumbline {

// Returns "0.2.0~git20261128.143005.abc1234": number, date and UTC time of the commit, commit; a
// later commit compares greater (dpkg --compare-versions). ".dirty" at the end: the tree had
// changes that were not committed. "0.2.0~dev0": the commit is not known. Static storage.
const char* BuildVersion();

}  // namespace plumbline
