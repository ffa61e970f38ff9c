"""Data workers forked from a watched trainer neither hang nor report."""

import unittest

import support
import torch


class CallsFromTheWorker(torch.utils.data.Dataset):
    """A dataset that reports from the forked worker, which it should not."""

    def __init__(self, run):
        self.run = run

    def __len__(self):
        return 20

    def __getitem__(self, index):
        self.run.scalar("from-worker", float(index))
        self.run.observe_routing("worker.0", torch.randn(8, 4),
                                 topk_indices=torch.zeros(8, 1, dtype=torch.int64), top_k=1)
        with self.run.span("data"):
            return torch.tensor(index)


class Fork(unittest.TestCase):
    def test_workers_end_and_stay_silent(self):
        import plumbline
        with support.scratch() as folder, support.Server(folder) as server:
            run = plumbline.init(run="fork", server=server.address, record=str(folder / "record"))
            for step in range(6):  # the agent's threads run from the first step on
                with run.step(step):
                    run.scalar("loss", 1.0 + step)
                    batches = torch.utils.data.DataLoader(CallsFromTheWorker(run), num_workers=2,
                                                          timeout=support.PATIENCE)
                    self.assertEqual([int(x) for x in batches], list(range(20)))
            run.finish(timeout=support.PATIENCE)
            status, report = support.audit(folder / "record")
            self.assertEqual(report["coverage"]["dropped"], 0)
            layers = {v["site"]["layer"] for v in report["verdicts"]}
            self.assertNotIn("worker.0", layers)
            self.assertNotEqual(status, 2)
            self.assertEqual([(i["format"], i["problems"]) for i in report["inputs"]],
                             [("run-record", [])])
            self.assertGreaterEqual(report["inputs"][0]["records"], 6)


if __name__ == "__main__":
    support.main()
