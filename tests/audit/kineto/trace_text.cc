#include "tests/audit/kineto/trace_text.h"

#include <zlib.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::audit::testing {
namespace {

// Nanoseconds as microseconds with three decimals.
std::string Micro(int64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

class Writer {
 public:
  Writer(const timeline::Columns& columns, const TraceStyle& style)
      : in_(columns), style_(style), newline_(style.spaced ? "\n    " : "") {}

  std::string Take() {
    Begin();
    for (const auto& step : in_.steps)
      Add("user_annotation", absl::StrCat("ProfilerStep#", step.number), 0, 0, step.start, step.end,
          "");
    for (const auto& span : in_.spans) {
      const bool runtime = in_.names[span.name].starts_with("cuda");
      Add(runtime ? "cuda_runtime" : "user_annotation", in_.names[span.name], 0, span.thread,
          span.start, span.end, "");
    }
    for (const auto& launch : in_.launches) {
      Noise(launch.start);
      Add("cuda_runtime", launch.kernel ? "cudaLaunchKernel" : "cudaMemcpyAsync", 0, launch.thread,
          launch.start, launch.start + launch.duration,
          absl::StrCat("\"External id\": 7, \"cbid\": 211, \"correlation\": ", launch.correlation));
    }
    for (const auto& work : in_.gpu) Gpu(work);
    return End();
  }

 private:
  void Begin() {
    if (style_.bare) {
      out_ = "[";
      return;
    }
    out_ =
        "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [{\"id\": 0, \"name\": \"H100 "
        "[\\\"x\\\"]\"}],";
    if (!style_.late_rank) Process();
    out_ += "\n  \"displayTimeUnit\": \"ms\",\n  \"traceEvents\": [";
  }

  void Process() {
    if (style_.rank < 0) return;
    absl::StrAppend(&out_,
                    "\n  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": ", style_.rank,
                    ", \"world_size\": ", style_.world, ", \"pg_config\": [{\"ranks\": [0, 1]}]},");
  }

  std::string End() {
    out_ += style_.bare ? "\n]\n" : "\n  ],";
    if (style_.bare) return std::move(out_);
    if (style_.late_rank) Process();
    out_ += "\n  \"traceName\": \"t.json\"\n}\n";
    return std::move(out_);
  }

  void Gpu(const timeline::GpuWork& work) {
    static const char* const kCategories[] = {"kernel", "gpu_memcpy", "gpu_memset"};
    std::string args =
        absl::StrCat("\"External id\": 3, \"device\": ", work.device,
                     ", \"context\": 1, \"stream\": ", work.stream, ", \"grid\": [4, 1, 1]");
    if (work.correlation != timeline::kNoCorrelation)
      absl::StrAppend(&args, ", \"correlation\": ", work.correlation);
    Add(kCategories[static_cast<int>(work.kind)], in_.names[work.name], 1, work.stream, work.start,
        work.end, args);
  }

  void Noise(int64_t at) {
    if (!style_.noise) return;
    Add("cpu_op", "aten::mul", 0, 0, at - 5000, at - 1000,
        R"("Input Dims": [[4096, 4096], []], "Call stack": "a {b] \\\" c")");
    Comma();
    absl::StrAppend(&out_, R"({"ph": "s", "id": 5, "pid": 0, "tid": 0, "ts": )", Micro(at),
                    R"(, "cat": "ac2g", "name": "ac2g"})");
  }

  void Add(const std::string& category, const std::string& name, int process, uint32_t thread,
           int64_t start, int64_t end, const std::string& args) {
    Comma();
    absl::StrAppend(&out_, "{", newline_, R"("ph": "X", "cat": ")", category, R"(", "name": ")",
                    name, R"(", "pid": )", process, ", \"tid\": ", thread, ",", newline_,
                    "\"ts\": ", Micro(start), ", \"dur\": ", Micro(end - start), ",", newline_,
                    "\"args\": {", newline_, args, newline_, "}", newline_, "}");
  }

  void Comma() {
    out_ += first_ ? "\n  " : ",\n  ";
    first_ = false;
  }

  const timeline::Columns& in_;
  const TraceStyle& style_;
  std::string newline_, out_;
  bool first_ = true;
};

}  // namespace

std::string TraceText(const timeline::Columns& columns, const TraceStyle& style) {
  return Writer(columns, style).Take();
}

std::string Gzip(const std::string& bytes) {
  z_stream z = {};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, bytes.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

}  // namespace plumbline::audit::testing
