#include "bench/gpu/gemm/gemm_probe.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "bench/gpu/gemm/gemm_dump.h"
#include "bench/gpu/gemm/gemm_values.h"

namespace plumbline::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Values = absl::Span<const double>;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns true if batches are tested. An fp8 product needs a multiple of 16 rows, and a split is
// one algorithm, whatever the rows.
bool QueriesBatches(const Product& p) { return p.input != DType::kE4M3 && p.split_k == 0; }

// Measures one element of the product as a sum, until the deadline.
class Element {
 public:
  Element(const Product& product, Matmul* matmul, Clock::time_point deadline)
      : product_(product),
        matmul_(*matmul),
        deadline_(deadline),
        factors_(product.input, product.shape.inner, matmul->factors()) {}

  sums::Target Target(const std::string& library, bool batches) {
    sums::Target target;
    target.name = NameOf(product_);
    target.library = library;
    target.kind = sums::Kind::kGemm;
    target.n = product_.shape.inner;
    target.input = product_.input;
    target.output = product_.output;
    target.call = [this](Values a, Values b, double* y) {
      return Read(a, b, y, [this](const std::byte** d) { return matmul_.Compute(1, d); });
    };
    if (!batches) return target;
    target.batched = [this](int rows, Values a, Values b, double* y) {
      batch_status_ =
          Read(a, b, y, [=, this](const std::byte** d) { return matmul_.ComputeBatch(rows, d); });
      return batch_status_;
    };
    return target;
  }

  int64_t calls() const { return calls_; }
  // Of the last product in a batch.
  const absl::Status& batch_status() const { return batch_status_; }

 private:
  template <typename Compute>
  absl::Status Read(Values a, Values b, double* y, Compute compute) {
    if (Clock::now() > deadline_) return absl::DeadlineExceededError("");
    factors_.Set(a, b);
    ++calls_;
    const std::byte* d = nullptr;
    if (absl::Status s = compute(&d); !s.ok()) return s;
    *y = Decode(product_.output, d);
    return absl::OkStatus();
  }

  const Product& product_;
  Matmul& matmul_;
  const Clock::time_point deadline_;
  RowAndColumn factors_;
  int64_t calls_ = 0;
  absl::Status batch_status_;
};

std::string BatchOf(const sums::Fingerprint& fingerprint) {
  for (const sums::TestResult& test : fingerprint.tests) {
    if (test.id == "T7") return test.result;
  }
  return "";
}

class Prober {
 public:
  Prober(const Product& product, const ProbeLimits& limits, MatmulLibrary* library)
      : limits_(limits), library_(*library), start_(Clock::now()) {
    out_.product = product;
  }

  absl::StatusOr<Probed> Run() {
    absl::Status status = OpenAndQuery();
    out_.seconds = SecondsSince(start_);
    if (status.ok()) {
      out_.outcome = Outcome::kRequested;
    } else if (IsRefusal(status)) {
      out_.outcome = Outcome::kRefused;
      out_.why = std::string(status.message());
    } else if (absl::IsDeadlineExceeded(status)) {
      out_.why = absl::StrCat("over its ", limits_.seconds, " s after ", out_.calls, " calls");
    } else {
      return status;
    }
    return std::move(out_);
  }

 private:
  absl::Status OpenAndQuery() {
    auto opened = library_.Open(out_.product);
    if (!opened.ok()) return opened.status();
    matmul_ = *std::move(opened);
    out_.algorithm = matmul_->algorithm();
    if (out_.product.dump) {
      auto dump = MatmulDump(out_.product, library_.name(), matmul_.get());
      if (!dump.ok()) return dump.status();
      out_.dump = dump->File();
    }
    absl::Status status = Fingerprint(QueriesBatches(out_.product));
    // If a batch size is refused, the product can still be probed without batches.
    return batch_refused_ ? Fingerprint(false) : status;
  }

  absl::Status Fingerprint(bool batches) {
    const auto limit = std::chrono::duration<double>(limits_.seconds);
    Element element(out_.product, matmul_.get(),
                    start_ + std::chrono::duration_cast<Clock::duration>(limit));
    auto found = sums::TakeFingerprint(element.Target(library_.name(), batches), limits_.options);
    out_.calls += element.calls();
    batch_refused_ = batches && IsRefusal(element.batch_status());
    if (batch_refused_) {
      out_.batch = absl::StrCat("not asked: ", element.batch_status().message());
    }
    if (!found.ok()) return found.status();
    out_.fingerprint = *std::move(found);
    if (batches) out_.batch = BatchOf(out_.fingerprint);
    return absl::OkStatus();
  }

  const ProbeLimits& limits_;
  MatmulLibrary& library_;
  const Clock::time_point start_;
  std::unique_ptr<Matmul> matmul_;
  Probed out_;
  bool batch_refused_ = false;
};

}  // namespace

const char* OutcomeName(Outcome outcome) {
  constexpr const char* kNames[] = {"asked", "refused", "not reached"};
  return kNames[static_cast<int>(outcome)];
}

absl::StatusOr<Probed> Probe(const Product& product, const ProbeLimits& limits,
                             MatmulLibrary* library) {
  return Prober(product, limits, library).Run();
}

}  // namespace plumbline::bench
