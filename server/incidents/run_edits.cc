#include "server/incidents/run_edits.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::server {
namespace {

constexpr char kNamed[] = "run:";
constexpr size_t kMostTag = 64, kMostName = 256, kMostNote = 4096;  // bytes

absl::Status CheckText(const char* what, const std::string& text, size_t most) {
  if (text.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": expected at most ", most, " bytes, found ", text.size()));
}

}  // namespace

absl::Status CheckEdit(const v1::RunEdit& edit) {
  const bool changes = edit.add_tags_size() > 0 || edit.remove_tags_size() > 0 || edit.has_note() ||
                       edit.has_name() || edit.has_archived() || edit.has_deleted();
  if (changes == edit.undo())
    return absl::InvalidArgumentError(
        changes ? "expected an edit or undo, found both"
                : "expected a tag, a note, a name, archive, delete or undo, found no edit");
  for (const std::string& tag : edit.add_tags()) {
    if (tag.empty()) return absl::InvalidArgumentError("tag: expected a text, found none");
    if (auto s = CheckText("tag", tag, kMostTag); !s.ok()) return s;
  }
  if (static_cast<size_t>(edit.add_tags_size()) > RunEdits::kMostTags)
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", RunEdits::kMostTags, " tags"));
  if (auto s = CheckText("note", edit.note(), kMostNote); !s.ok()) return s;
  return CheckText("name", edit.name(), kMostName);
}

std::string OwnerIn(const v1::RunLabels& labels) {
  constexpr std::string_view kOwner = "owner:";
  for (const std::string& tag : labels.tags()) {
    if (tag.starts_with(kOwner)) return tag.substr(kOwner.size());
  }
  return "";
}

v1::IncidentUpdate RunEdits::UpdateOf(const v1::RunEdit& edit, const std::string& who) {
  v1::IncidentUpdate update;
  update.set_fingerprint(absl::StrCat(kNamed, edit.run()));
  update.set_who(who);
  update.set_reason(absl::Base64Escape(edit.SerializeAsString()));
  return update;
}

std::optional<v1::RunEdit> RunEdits::EditOf(const v1::IncidentUpdate& update) {
  if (update.action() != v1::IncidentUpdate::ACTION_UNSPECIFIED ||
      update.fingerprint().rfind(kNamed, 0) != 0)
    return std::nullopt;
  std::string bytes;
  v1::RunEdit edit;
  if (!absl::Base64Unescape(update.reason(), &bytes) || !edit.ParseFromString(bytes))
    return std::nullopt;
  return edit;
}

void RunEdits::Apply(const v1::RunEdit& edit, const std::string& who, int64_t unix_ns) {
  Entry& entry = runs_[edit.run()];
  if (edit.undo()) {
    if (entry.earlier.empty()) return;
    entry.labels = std::move(entry.earlier.back());
    entry.earlier.pop_back();
    return;
  }
  entry.earlier.push_back(entry.labels);
  if (entry.earlier.size() > kMostEarlier) entry.earlier.erase(entry.earlier.begin());
  v1::RunLabels& labels = entry.labels;
  std::set<std::string> tags(labels.tags().begin(), labels.tags().end());
  for (const std::string& tag : edit.remove_tags()) tags.erase(tag);
  for (const std::string& tag : edit.add_tags()) {
    if (tags.size() < kMostTags) tags.insert(tag);
  }
  labels.clear_tags();
  for (const std::string& tag : tags) labels.add_tags(tag);
  if (edit.has_note()) labels.set_note(edit.note());
  if (edit.has_name()) labels.set_name(edit.name());
  if (edit.has_archived()) labels.set_archived(edit.archived());
  if (edit.has_deleted()) labels.set_deleted(edit.deleted());
  labels.set_who(who);
  labels.set_unix_ns(unix_ns);
}

v1::RunLabels RunEdits::Of(const std::string& run) const {
  const auto found = runs_.find(run);
  return found == runs_.end() ? v1::RunLabels() : found->second.labels;
}

std::set<std::string> RunEdits::Deleted() const {
  std::set<std::string> runs;
  for (const auto& [run, entry] : runs_) {
    if (entry.labels.deleted()) runs.insert(run);
  }
  return runs;
}

void RunEdits::Entry::Persist(Archive& archive) { archive(labels, earlier); }

void RunEdits::Persist(Archive& archive) {
  archive.Version(1);
  archive(runs_);
}

}  // namespace plumbline::server
