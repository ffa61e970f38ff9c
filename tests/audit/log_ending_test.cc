// Tests how the last lines of a trainer's log are read: the kinds of ending, and lines that are
// none.
#include "audit/readers/trainer_log/log_ending.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "audit/readers/trainer_log/scaler_sentences.h"

namespace plumbline::audit {
namespace {

constexpr char kRow[] = "{'loss': 1.4, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.5}\n";
constexpr char kTraceback[] =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 57, in <module>\n"
    "    trainer.train()\n";

TEST(LogEnding, AnExceptionIsItsTypeAndItsLine) {
  const auto ending = EndingOf(std::string(kRow) + kTraceback + "ValueError: bad labels\n");
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->kind, LogEnding::Kind::kException);
  EXPECT_EQ(ending->type, "ValueError");
  EXPECT_EQ(ending->message, "ValueError: bad labels");
  EXPECT_FALSE(ending->rank);
}

TEST(LogEnding, TheFirstExceptionCounts) {
  const auto ending = EndingOf(
      std::string(kRow) + "[rank3]: " + "Traceback (most recent call last):\n" +
      "[rank3]:   File \"a.py\", line 1\n[rank3]: KeyError: 'x'\n" + kTraceback +
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED\n");
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->type, "KeyError");
  EXPECT_EQ(ending->rank, 3u);
}

TEST(LogEnding, MemoryThatRanOut) {
  const auto ending = EndingOf(std::string(kRow) + kTraceback +
                               "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
                               "GiB. GPU 0 has a total capacity of 79.15 GiB\n");
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->kind, LogEnding::Kind::kOutOfMemory);
}

TEST(LogEnding, AKill) {
  for (const char* line :
       {"Killed\n", "run.sh: line 3:  4711 Killed                  python train.py\n",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0\n"}) {
    const auto ending = EndingOf(std::string(kRow) + line);
    ASSERT_TRUE(ending) << line;
    EXPECT_EQ(ending->kind, LogEnding::Kind::kKilled) << line;
  }
}

std::string Watchdog(int rank, int sequence, int enqueued) {
  const std::string head = "[rank" + std::to_string(rank) +
                           "]:[E ProcessGroupNCCL.cpp:607] [Rank " + std::to_string(rank) + "] ";
  return head + "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" +
         std::to_string(sequence) + ", OpType=ALLREDUCE, NumelIn=4, Timeout(ms)=600000) ran for " +
         "600029 milliseconds before timing out.\n" + head +
         "Exception detected by watchdog at work: " + std::to_string(sequence) +
         ", last enqueued NCCL work: " + std::to_string(enqueued) +
         ", last completed NCCL work: " + std::to_string(sequence - 1) + ".\n";
}

TEST(LogEnding, ATimeoutNamesTheRankThatDidNotCome) {
  const auto ending = EndingOf(std::string(kRow) + Watchdog(0, 120, 124) + Watchdog(1, 120, 124) +
                               Watchdog(2, 118, 118) + Watchdog(3, 120, 124));
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->kind, LogEnding::Kind::kTimeout);
  EXPECT_EQ(ending->sequence, 120u);
  EXPECT_EQ(ending->op, "ALLREDUCE");
  EXPECT_EQ(ending->waiting, (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(ending->missing, (std::vector<uint32_t>{2}));
}

TEST(LogEnding, ARankThatPrintedNoTimeoutWasElsewhere) {
  const auto ending = EndingOf("[rank0]: start\n[rank1]: start\n" + Watchdog(0, 7, 9));
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->missing, (std::vector<uint32_t>{1}));
}

TEST(LogEnding, TheTrainerStopsForItsLoss) {
  for (const char* line :
       {"Loss is nan, stopping training", "Loss is inf, stopping training",
        "Batch 12: Invalid loss, terminating training", "NaN detected in loss! Aborting",
        "Monitored metric val_loss = nan is not finite. Previous best value was 1.234. Signaling "
        "Trainer to stop.",
        "ERROR:tensorflow:Model diverged with loss = NaN.",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. "
        "Try lowering the learning rate."}) {
    const auto ending = EndingOf(std::string(kRow) + line + "\n");
    ASSERT_TRUE(ending) << line;
    EXPECT_EQ(ending->kind, LogEnding::Kind::kNotFinite) << line;
    EXPECT_FALSE(EndingOf(std::string(kRow) + line + "\n" + kRow)) << line;
  }
  for (const char* line : {"terminate_on_nan: True, loss is nan check on", "no NaN in loss so far",
                           "if the loss is nan, see the manual"})
    EXPECT_FALSE(EndingOf(std::string(kRow) + line + "\n")) << line;
}

TEST(LogEnding, TheTrainerReportsANan) {
  for (const std::string line :
       {"WARNING NaN or Inf detected in loss, recovering from last.pt (attempt 1/3)...\n",
        "NaN or Inf found in input tensor.\nNaN or Inf found in input tensor.\n"}) {
    const auto ending = EndingOf(kRow + line);
    ASSERT_TRUE(ending) << line;
    EXPECT_EQ(ending->kind, LogEnding::Kind::kNotFinite) << line;
    EXPECT_EQ(ending->type, "report") << line;
    EXPECT_FALSE(EndingOf(kRow + line + kRow)) << "training went on after " << line;
    // Rows of a detector do not name the loss.
    std::string rows;
    for (int i = 0; i < 6; ++i) rows += "  5/100  2.61G  1.2  1.8  1.2  23  640\n";
    EXPECT_FALSE(EndingOf(kRow + line + rows)) << "training went on after " << line;
  }
}

TEST(LogEnding, WhatComesBeforeSuccessIsNoEnd) {
  const std::string sample =
      std::string(kRow) + kTraceback + "NameError: name 'x' is not defined\n";
  EXPECT_TRUE(EndingOf(sample + "reward=0.0\n"));
  for (const char* line : {"Training complete.", "Training finished.", "Finished training in 3 h",
                           "INFO: training completed (200 steps)"}) {
    EXPECT_FALSE(EndingOf(sample + "reward=0.0\n" + line + "\n")) << line;
    const std::string thread = "Exception in thread Thread-5 (_pin_memory_loop):\n";
    const std::string lost = kTraceback + std::string("ConnectionResetError: [Errno 104] reset\n");
    EXPECT_FALSE(EndingOf(kRow + std::string(line) + "\n" + thread + lost)) << line;
    EXPECT_TRUE(EndingOf(kRow + std::string(line) + "\n" + lost)) << line;
  }
  EXPECT_TRUE(EndingOf(sample + "Saving before training finished with an error\n"));
}

TEST(LogEnding, WhatEndsWellIsNone) {
  EXPECT_FALSE(EndingOf(""));
  EXPECT_FALSE(EndingOf(kRow));
  EXPECT_FALSE(EndingOf(std::string(kRow) + "{'train_runtime': 12.1, 'train_loss': 1.2}\n"));
  // An exception that was caught: training continues.
  EXPECT_FALSE(EndingOf(std::string(kTraceback) + "OSError: retry\n" + kRow));
  EXPECT_FALSE(EndingOf(std::string(kRow) + "This run Killed the competition in 3 steps\n"));
  // Python prints exceptions of finalizers, and ignores them.
  EXPECT_FALSE(EndingOf(std::string(kRow) + "Exception ignored in: <function X.__del__ at 0x7f>\n" +
                        kTraceback + "AssertionError: can only test a child process\n"));
  EXPECT_FALSE(EndingOf(std::string(kRow) + "Process exited with exit code 0\n"));
  EXPECT_FALSE(EndingOf(std::string(kRow) + "/x.py:3: FutureWarning: use y\nwandb: done\n"));
  // An exception that a loop prints, long before the end.
  std::string later = std::string(kRow) + "OSError: retry\n";
  for (int i = 0; i < 8; ++i) later += "saving shard\n";
  EXPECT_FALSE(EndingOf(later));
  EXPECT_FALSE(EndingOf(std::string(kRow) + "saved; see ValueError: handled above\n"));
}

struct EndCase {
  const char* lines;
  LogEnding::Kind kind;
  const char* type;
};

// Lines that shells, schedulers and launchers print about a process that has ended.
TEST(LogEnding, EndsWithoutATraceback) {
  using Kind = LogEnding::Kind;
  const EndCase cases[] = {
      {"Segmentation fault (core dumped)\n", Kind::kCrash, "SIGSEGV"},
      {"./run.sh: line 12: 12345 Segmentation fault      (core dumped) python train.py\n",
       Kind::kCrash, "SIGSEGV"},
      {"Fatal Python error: Segmentation fault\n", Kind::kCrash, "SIGSEGV"},
      {"Bus error (core dumped)\n", Kind::kCrash, "SIGBUS"},
      {"terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an "
       "illegal memory access was encountered\nAborted (core dumped)\n",
       Kind::kCrash, "SIGABRT"},
      {"[1]    12345 killed     python train.py\n", Kind::kKilled, "SIGKILL"},
      {"slurmstepd: error: *** JOB 4418291 ON gpu-a-17 CANCELLED AT 2024-05-14T03:22:10 DUE TO "
       "TIME LIMIT ***\n",
       Kind::kCancelled, "time limit"},
      {"slurmstepd: error: *** STEP 44.0 ON gpu-a-17 CANCELLED AT 2024-05-14T03:22:10 ***\n",
       Kind::kCancelled, "cancelled"},
      {"srun: error: gpu-a-17: task 3: Exited with exit code 1\n", Kind::kException, "exit status"},
      {"mpirun noticed that process rank 3 with PID 0 on node gpu-a-17 exited on signal 9 "
       "(Killed).\n",
       Kind::kKilled, "SIGKILL"},
      {"command terminated with exit code 137\n", Kind::kKilled, "SIGKILL"},
      {"OOMKilled\n", Kind::kKilled, "SIGKILL"},
      {"Error: Process completed with exit code 137.\n", Kind::kKilled, "SIGKILL"},
      {"ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 "
       "(pid: 23311) of binary: /usr/bin/python\n",
       Kind::kException, "exit status"},
      {"Received Signals.SIGTERM death signal, shutting down workers\n", Kind::kCancelled,
       "SIGTERM"},
      {"[launch.py:321:sigkill_handler] exits with return code = -9\n", Kind::kKilled, "SIGKILL"},
      {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 "
       "bytes\n",
       Kind::kOutOfMemory, "jaxlib.xla_extension.XlaRuntimeError"},
      {"ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
       "memory.\n",
       Kind::kKilled, "ray.exceptions.OutOfMemoryError"},
      {"RuntimeError: DataLoader worker (pid 12345) is killed by signal: Killed. \n", Kind::kKilled,
       "RuntimeError"},
      {"2024-05-14 03:22:10,412 ERROR Traceback (most recent call last):\n2024-05-14 03:22:10,412 "
       "ERROR   File \"a.py\", line 3\n2024-05-14 03:22:10,412 ERROR ValueError: bad\n",
       Kind::kException, "ValueError"},
      {"\u256d\u2500\u2500 Traceback (most recent call last) \u2500\u256e\n\u2502 a.py:3 \u2502\n"
       "\u2570\u2500\u2500\u256f\nRuntimeError: CUDA error: out of memory\n",
       Kind::kOutOfMemory, "RuntimeError"},
      {"thread 'main' panicked at src/main.rs:3:5:\n", Kind::kCrash, "panic"},
      {"[CUDA ERROR] at file train_gpt2.cu:1234:\nout of memory\n", Kind::kOutOfMemory,
       "CUDA error"},
      {"Traceback (most recent call last):\n  File \"a.py\", line 1\n    x()\n", Kind::kException,
       ""},
  };
  for (const EndCase& c : cases) {
    const auto ending = EndingOf(std::string(kRow) + c.lines);
    ASSERT_TRUE(ending) << c.lines;
    EXPECT_EQ(ending->kind, c.kind) << c.lines;
    EXPECT_EQ(ending->type, c.type) << c.lines;
    // Training continues after it.
    EXPECT_FALSE(EndingOf(std::string(c.lines) + kRow)) << c.lines;
  }
}

// An exception that was caught: the process writes on.
TEST(LogEnding, AnExceptionThatIsTriedAgainIsNoEnd) {
  const std::string error = "ConnectionError: HTTPSConnectionPool: Max retries exceeded";
  EXPECT_TRUE(EndingOf(std::string(kRow) + error + "\n"));
  EXPECT_TRUE(EndingOf(std::string(kRow) + error + "\nprocess 7 completed with exit code 1\n"));
  EXPECT_FALSE(EndingOf(std::string(kRow) + error + " (retry 1 of 5)\n"));
  EXPECT_FALSE(EndingOf(std::string(kRow) + error + "\nUpload finished\n"));
  const auto lost =
      EndingOf(std::string(kRow) + "NVRM: Xid (PCI:0000:4d:00): 79, GPU has fallen off the bus.\n");
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->type, "Xid 79");
}

// torchrun's own exception is no cause: its report names the rank and the signal.
TEST(LogEnding, ALauncherReportsTheFirstFailure) {
  const std::string report =
      std::string(kTraceback) +
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
      "train.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  time      : 2024-05-14\n"
      "  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 23311)\n"
      "  traceback : Signal 9 (SIGKILL) received by PID 23311\n";
  const auto killed = EndingOf(std::string(kRow) + report);
  ASSERT_TRUE(killed);
  EXPECT_EQ(killed->kind, LogEnding::Kind::kKilled);
  EXPECT_EQ(killed->type, "SIGKILL");
  EXPECT_EQ(killed->rank, 3u);
  // The worker's own exception is more specific.
  const auto raised = EndingOf(std::string(kRow) + kTraceback + "ValueError: bad\n" + report);
  ASSERT_TRUE(raised);
  EXPECT_EQ(raised->type, "ValueError");
  EXPECT_EQ(raised->rank, 3u);
}

TEST(LogEnding, TheLastOfChainedExceptionsCounts) {
  const auto ending =
      EndingOf(std::string(kRow) + kTraceback + "KeyError: 'k'\n\n" +
               "During handling of the above exception, another exception occurred:\n\n" +
               kTraceback + "ValueError: bad config\n");
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->type, "ValueError");
  EXPECT_EQ(ending->message, "ValueError: bad config (raised while KeyError: 'k' was handled)");
}

TEST(ScalerSentences, EveryFormCounts) {
  ScalerSentences stated;
  stated.Take(
      "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to "
      "32768.0",
      0);
  stated.Take("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0",
              100);
  stated.Take("NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 8192.0",
              200);
  stated.Take("overflow detected, setting loss scale to 4096", 300);
  stated.Take("loss 1.4, no overflow here", 400);
  stated.Take("OVERFLOW! reducing to nan", 500);
  EXPECT_EQ(stated.events(), 4u);
  EXPECT_EQ(stated.first(), 65536);
  EXPECT_EQ(stated.last(), 4096);
  EXPECT_FALSE(stated.storm(1000)) << "four halvings are a start";
}

TEST(ScalerSentences, AStormFallsToTheEnd) {
  ScalerSentences stated;
  double scale = 65536;
  for (int i = 0; i < 14; ++i) {
    scale /= 2;
    stated.Take("Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to " +
                    std::to_string(scale),
                static_cast<uint64_t>(100 * i));
  }
  EXPECT_TRUE(stated.storm(1400));
  EXPECT_FALSE(stated.storm(100'000)) << "training went on for long";
}

TEST(LogEnding, PoisonedLinesAreNoCrash) {
  EXPECT_FALSE(EndingOf("[rank]: x\n[rank99999999999999999999]: SeqNum=\n\n[rank"));
  const std::string longest(100'000, 'x');
  const auto ending = EndingOf(kTraceback + ("ValueError: " + longest));
  ASSERT_TRUE(ending);
  EXPECT_LE(ending->message.size(), 303u);
}

}  // namespace
}  // namespace plumbline::audit
