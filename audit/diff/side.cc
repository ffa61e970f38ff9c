#include "audit/diff/side.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/render/text_util.h"
#include "audit/session/inputs.h"

namespace plumbline::audit {
namespace {

std::string NameOf(const v1::Site& site) {
  return site.layer().empty() ? site.op() : site.layer() + "/" + site.op();
}

// Returns true for formats whose files get a new name in each run (an id, a time). Such files are
// identified by the format alone.
bool NamesItsFilesAnew(const std::string& format) {
  return format == "wandb" || format == "swanlab" || format == "comet" || format == "mlflow" ||
         format == "tracker-database";
}

std::string PlaceBelow(const std::string& path, const InputReport& report) {
  if (NamesItsFilesAnew(report.format)) return "";
  std::filesystem::path place = std::filesystem::path(report.path).lexically_relative(path);
  if (report.format == "tensorboard") place = place.parent_path();
  return place.string();
}

// Values of one series of one run, in arrival order.
struct Values {
  struct Value {
    int64_t step = 0;
    uint32_t attempt = 0;
    double value = 0;
  };
  uint32_t rank = 0;
  std::vector<Value> values;
};

class Collector {
 public:
  Collector(std::string path, DiffSide* side) : path_(std::move(path)), side_(side) {}

  // Records which file a run belongs to.
  void TakePlace(const InputReport& report) {
    for (const std::string& name : report.runs) {
      const auto run = runs_.find(name);
      if (run == runs_.end()) continue;
      RecordedRun& recorded = run->second.recorded;
      const std::string place = PlaceBelow(path_, report);
      if (!recorded.format.empty() && recorded.place <= place) continue;
      recorded.format = report.format;
      recorded.place = place;
    }
  }

  // Records what a file states about the settings of its runs.
  void TakeSettings(const InputReport& report) {
    for (const std::string& name : report.runs) {
      const auto run = runs_.find(name);
      if (run == runs_.end()) continue;
      for (const auto& [key, value] : report.settings) {
        if (run->second.recorded.settings.size() >= kMostDiffSettings) return;
        run->second.recorded.settings.emplace(key, value);
      }
    }
  }

  void Take(const v1::Batch& batch) {
    for (const v1::SeriesSet& set : batch.series_sets()) Declare(batch.stream_id(), set);
    for (const v1::Evidence& evidence : batch.evidence()) {
      if (evidence.source() < static_cast<uint32_t>(batch.sources_size()))
        Take(batch.sources(static_cast<int>(evidence.source())), evidence);
    }
    for (const v1::SeriesRows& rows : batch.series()) Take(batch, rows);
  }

  void Finish() {
    for (auto& [name, run] : runs_) {
      RecordedRun& out = side_->runs.emplace_back(std::move(run.recorded));
      out.path = path_;
      out.run = name;
      for (auto& [series, values] : run.series) out.series.emplace(series, Sorted(values));
      out.steps = run.span_steps.size();
      for (const auto& [role, world] : run.worlds)
        out.settings.emplace(role + ": world size", absl::StrCat(world));
    }
  }

 private:
  struct Run {
    RecordedRun recorded;
    std::map<std::string, Values> series;
    std::map<std::string, uint32_t> worlds;  // world size by role
    std::set<int64_t> span_steps;
  };

  // Returns the run; nullptr if there are too many runs.
  Run* RunOf(const v1::Source& source) {
    if (runs_.size() >= kMostDiffRuns && !runs_.contains(source.run())) return nullptr;
    Run& run = runs_[source.run()];
    uint32_t& world = run.worlds[source.role() == v1::ROLE_ROLLOUT ? "rollout" : "trainer"];
    world = std::max(world, source.world_size());
    return &run;
  }

  void Declare(uint64_t stream, const v1::SeriesSet& set) {
    if (sets_.size() >= kMostDiffSets) return;
    std::vector<std::string>& names = sets_[{stream, set.id()}];
    names.clear();
    for (const v1::Site& site : set.sites()) names.push_back(NameOf(site));
  }

  void Add(const v1::Source& source, const std::string& name, int64_t step, double value) {
    Run* of = RunOf(source);
    if (of == nullptr || points_ >= kMostDiffPoints) {
      ++side_->left_out;
      return;
    }
    Run& run = *of;
    const auto found = run.series.find(name);
    if (found == run.series.end() && run.series.size() >= kMostDiffSeries) {
      ++side_->left_out;
      return;
    }
    Values& values = found == run.series.end() ? run.series[name] : found->second;
    if (values.values.empty()) values.rank = source.rank();
    if (source.rank() > values.rank) return;
    if (source.rank() < values.rank) {
      points_ -= values.values.size();
      values.values.clear();
      values.rank = source.rank();
    }
    values.values.push_back({step, source.attempt(), value});
    ++points_;
  }

  void Take(const v1::Batch& batch, const v1::SeriesRows& rows) {
    const auto set = sets_.find({batch.stream_id(), rows.set()});
    if (set == sets_.end() || rows.source_size() == 0) return;
    const size_t columns = set->second.size(), count = static_cast<size_t>(rows.step_size());
    if (columns == 0 || static_cast<size_t>(rows.value_size()) != columns * count) return;
    const std::string& absent = rows.absent();
    for (size_t r = 0; r < count; ++r) {
      const size_t at = rows.source_size() == 1 ? 0 : r;
      if (at >= static_cast<size_t>(rows.source_size())) return;
      const uint32_t source = rows.source(static_cast<int>(at));
      if (source >= static_cast<uint32_t>(batch.sources_size())) continue;
      for (size_t c = 0; c < columns; ++c) {
        const size_t bit = r * columns + c;
        const bool missing = bit / 8 < absent.size() && (absent[bit / 8] >> (bit % 8) & 1) != 0;
        if (!missing)
          Add(batch.sources(static_cast<int>(source)), set->second[c],
              rows.step(static_cast<int>(r)), rows.value(static_cast<int>(bit)));
      }
    }
  }

  void Take(const v1::Source& source, const v1::Evidence& evidence) {
    if (evidence.has_scalar()) {
      Add(source, NameOf(evidence.site()), evidence.step(), evidence.scalar().value());
      return;
    }
    Run* of = RunOf(source);
    if (of == nullptr) return;
    Run& run = *of;
    if (evidence.has_span()) {
      std::string kind = v1::Span::Kind_Name(evidence.span().kind());
      kind = kind.rfind("KIND_", 0) == 0 ? kind.substr(5) : kind;
      std::transform(kind.begin(), kind.end(), kind.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      run.recorded.seconds[kind] += static_cast<double>(evidence.span().duration_ns()) * 1e-9;
      run.span_steps.insert(evidence.step());
      return;
    }
    Settings(evidence, &run.recorded.settings);
  }

  // Collects the plain fields of this evidence's `config`.
  static void Settings(const v1::Evidence& evidence, std::map<std::string, std::string>* out) {
    if (out->size() >= kMostDiffSettings) return;
    const google::protobuf::Message* what = Only(evidence);
    if (what == nullptr) return;
    const auto* config = what->GetDescriptor()->FindFieldByName("config");
    if (config == nullptr ||
        config->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE ||
        config->is_repeated() || !what->GetReflection()->HasField(*what, config))
      return;
    const google::protobuf::Message& message = what->GetReflection()->GetMessage(*what, config);
    const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const google::protobuf::FieldDescriptor& field = *descriptor.field(i);
      if (field.is_repeated() ||
          field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE)
        continue;
      // A number that was not recorded is NaN.
      const std::string text = FieldText(message, field);
      if (text != "nan")
        out->emplace(absl::StrCat(NameOf(evidence.site()), ": ", field.name()), text);
    }
  }

  static const google::protobuf::Message* Only(const v1::Evidence& evidence) {
    const auto* one = evidence.GetDescriptor()->FindOneofByName("what");
    const auto* field = evidence.GetReflection()->GetOneofFieldDescriptor(evidence, one);
    return field == nullptr ? nullptr : &evidence.GetReflection()->GetMessage(evidence, field);
  }

  static std::string FieldText(const google::protobuf::Message& message,
                               const google::protobuf::FieldDescriptor& field) {
    using Field = google::protobuf::FieldDescriptor;
    const google::protobuf::Reflection& r = *message.GetReflection();
    switch (field.cpp_type()) {
      case Field::CPPTYPE_DOUBLE:
        return ExactNumber(r.GetDouble(message, &field));
      case Field::CPPTYPE_FLOAT:
        return ExactNumber(r.GetFloat(message, &field));
      case Field::CPPTYPE_BOOL:
        return r.GetBool(message, &field) ? "yes" : "no";
      case Field::CPPTYPE_ENUM:
        return r.GetEnum(message, &field)->name();
      case Field::CPPTYPE_STRING:
        return r.GetString(message, &field);
      case Field::CPPTYPE_INT32:
        return absl::StrCat(r.GetInt32(message, &field));
      case Field::CPPTYPE_INT64:
        return absl::StrCat(r.GetInt64(message, &field));
      case Field::CPPTYPE_UINT32:
        return absl::StrCat(r.GetUInt32(message, &field));
      default:
        return absl::StrCat(r.GetUInt64(message, &field));
    }
  }

  // Returns, for each step, the last value of the latest attempt.
  static std::vector<SeriesPoint> Sorted(Values& values) {
    std::stable_sort(values.values.begin(), values.values.end(), [](const auto& a, const auto& b) {
      return std::pair(a.step, a.attempt) < std::pair(b.step, b.attempt);
    });
    std::vector<SeriesPoint> points;
    for (const auto& value : values.values) {
      if (points.empty() || points.back().step != value.step) points.emplace_back();
      points.back() = {value.step, value.value};
    }
    values.values.clear();
    return points;
  }

  std::string path_;
  DiffSide* side_;
  std::map<std::string, Run> runs_;
  std::map<std::pair<uint64_t, uint64_t>, std::vector<std::string>> sets_;
  uint64_t points_ = 0;
};

// Collects the series of a path. Problems of inputs are in the audit's reports.
void Collect(const std::string& path, const AuditOptions& options, DiffSide* side) {
  Inputs inputs = FindInputs({path}, options.forced, options.mapped);
  Collector collector(path, side);
  for (const Inputs::Set& set : inputs.sets) {
    for (const auto& source : set.reader->OpenWith(set.files, options.readers)) {
      v1::Batch batch;
      while (source->Next(&batch)) {
        collector.Take(batch);
        batch.Clear();
      }
    }
  }
  for (const InputReport& report : inputs.reports) {
    collector.TakePlace(report);
    collector.TakeSettings(report);
  }
  collector.Finish();
}

}  // namespace

absl::StatusOr<DiffSide> ReadSide(const std::vector<std::string>& paths, AuditOptions options) {
  DiffSide side;
  side.paths = paths;
  side.roles = options.engine.roles;
  for (const std::string& path : paths) Collect(path, options, &side);
  options.paths = paths;
  absl::StatusOr<AuditResult> audit = RunAudit(options, nullptr);
  if (!audit.ok()) return audit.status();
  side.audit = *std::move(audit);
  return side;
}

}  // namespace plumbline::audit
