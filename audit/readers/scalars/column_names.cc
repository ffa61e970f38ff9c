#include "audit/readers/scalars/column_names.h"

#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {

uint32_t ColumnNames::Of(PointSink* sink, std::string_view prefix, std::string_view name) {
  if (next_ < entries_.size()) {
    const std::string_view expected = entries_[next_].name;
    if (expected.size() == prefix.size() + name.size() && expected.starts_with(prefix) &&
        expected.ends_with(name))
      return entries_[next_++].column;
  }
  std::string whole = std::string(prefix).append(name);
  if (const auto at = index_.find(whole); at != index_.end()) {
    next_ = at->second + 1;
    return entries_[at->second].column;
  }
  const uint32_t column = sink->Column(PlainName(whole));
  if (entries_.size() == kMostNames) return column;
  index_.emplace(whole, entries_.size());
  entries_.push_back({std::move(whole), column});
  next_ = entries_.size();
  return column;
}

uint32_t ColumnNames::Find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? PointSink::kNoColumn : entries_[at->second].column;
}

}  // namespace plumbline::audit
