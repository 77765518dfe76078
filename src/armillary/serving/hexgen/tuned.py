"""The variants that `tuning` chose on development traces (seed 1000); requests a dollar there."""

CHOSEN: dict[str, dict[str, str]] = {
    "moe-30b wildgpt": {
        "ours": "all",  # 38379
        "h100-agg": "0.9",  # 25899
        "h100-pd": "0.9",  # 20901
        "best-homogeneous": "agg",  # 26653
        "heterogeneous-pd": "0.9",  # 35226
        "no-afd": "agg+pd",  # 38379
        "no-pd": "0.9",  # 26653
    },
    "moe-30b openthoughts": {
        "ours": "all",  # 5465
        "h100-agg": "0.9",  # 2654
        "h100-pd": "0.9",  # 1327
        "best-homogeneous": "agg",  # 5465
        "heterogeneous-pd": "0.9",  # 4323
        "no-afd": "agg+pd",  # 5465
        "no-pd": "0.9",  # 5465
    },
    "moe-30b openr1-math": {
        "ours": "all",  # 8019
        "h100-agg": "0.9",  # 4239
        "h100-pd": "0.9",  # 2082
        "best-homogeneous": "agg",  # 8019
        "heterogeneous-pd": "0.9",  # 6370
        "no-afd": "agg+pd",  # 8019
        "no-pd": "0.9",  # 8019
    },
    "moe-30b numinamath": {
        "ours": "all",  # 56032
        "h100-agg": "0.9",  # 37523
        "h100-pd": "0.9",  # 26245
        "best-homogeneous": "agg",  # 56032
        "heterogeneous-pd": "0.9",  # 54233
        "no-afd": "agg+pd",  # 56032
        "no-pd": "0.9",  # 56032
    },
    "moe-30b azure-conv": {
        "ours": "all, 0.7",  # 33745
        "h100-agg": "0.9",  # 16612
        "h100-pd": "0.9",  # 26896
        "best-homogeneous": "pd",  # 26896
        "heterogeneous-pd": "0.9",  # 33745
        "no-afd": "agg+pd, 0.7",  # 33745
        "no-pd": "0.9",  # 19292
    },
    "dense-8b wildgpt": {
        "ours": "all",  # 33657
        "h100-agg": "0.9",  # 33657
        "h100-pd": "0.9",  # 23821
        "best-homogeneous": "agg",  # 33657
        "heterogeneous-pd": "0.7",  # 26449
        "no-afd": "agg+pd",  # 33657
        "no-pd": "0.9",  # 33657
    },
    "dense-8b openthoughts": {
        "ours": "one type",  # 3762
        "h100-agg": "0.9",  # 3131
        "h100-pd": "0.9",  # 2359
        "best-homogeneous": "agg",  # 3762
        "heterogeneous-pd": "tp1",  # 3309
        "no-afd": "one type",  # 3762
        "no-pd": "0.9",  # 3131
    },
    "dense-8b openr1-math": {
        "ours": "all",  # 4894
        "h100-agg": "0.9",  # 4894
        "h100-pd": "0.9",  # 3698
        "best-homogeneous": "agg",  # 4894
        "heterogeneous-pd": "0.9",  # 4235
        "no-afd": "agg+pd",  # 4894
        "no-pd": "0.9",  # 4894
    },
    "dense-8b numinamath": {
        "ours": "all",  # 59074
        "h100-agg": "0.9",  # 59074
        "h100-pd": "0.9",  # 49833
        "best-homogeneous": "agg",  # 59074
        "heterogeneous-pd": "0.9",  # 49833
        "no-afd": "agg+pd",  # 59074
        "no-pd": "0.9",  # 59074
    },
    "dense-8b azure-conv": {
        "ours": "all",  # 25805
        "h100-agg": "0.9",  # 25805
        "h100-pd": "0.9",  # 22369
        "best-homogeneous": "agg",  # 25805
        "heterogeneous-pd": "0.9",  # 22369
        "no-afd": "agg+pd",  # 25805
        "no-pd": "0.9",  # 25805
    },
    "dense-32b wildgpt": {
        "ours": "all",  # 6534
        "h100-agg": "0.9",  # 6534
        "h100-pd": "0.7",  # 6063
        "best-homogeneous": "agg",  # 6534
        "heterogeneous-pd": "0.9",  # 6063
        "no-afd": "agg+pd",  # 6534
        "no-pd": "0.9",  # 6534
    },
    "dense-32b openthoughts": {
        "ours": "all",  # 1061
        "h100-agg": "0.9",  # 1061
        "h100-pd": "0.9",  # 434
        "best-homogeneous": "agg",  # 1061
        "heterogeneous-pd": "0.9",  # 814
        "no-afd": "agg+pd",  # 1061
        "no-pd": "0.9",  # 1061
    },
    "dense-32b openr1-math": {
        "ours": "all",  # 1516
        "h100-agg": "0.9",  # 1516
        "h100-pd": "0.9",  # 631
        "best-homogeneous": "agg",  # 1516
        "heterogeneous-pd": "0.9",  # 1020
        "no-afd": "agg+pd",  # 1516
        "no-pd": "0.9",  # 1516
    },
    "dense-32b numinamath": {
        "ours": "all",  # 12739
        "h100-agg": "0.9",  # 12739
        "h100-pd": "0.9",  # 9182
        "best-homogeneous": "agg",  # 12739
        "heterogeneous-pd": "0.9",  # 9182
        "no-afd": "agg+pd",  # 12739
        "no-pd": "0.9",  # 12739
    },
    "dense-32b azure-conv": {
        "ours": "all",  # 5281
        "h100-agg": "0.9",  # 5281
        "h100-pd": "0.9",  # 4378
        "best-homogeneous": "agg",  # 5281
        "heterogeneous-pd": "tp1",  # 4599
        "no-afd": "agg+pd",  # 5281
        "no-pd": "0.9",  # 5281
    },
}
