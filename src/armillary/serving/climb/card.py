"""What the catalogue knows of climb."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="climb",
    field="serving",
    title="An ingress that keeps multi-LoRA serving off the residency cliff",
    gift="Keep VIP requests quick when more LoRA adapters are in use than the engine holds.",
    paper=Paper(
        "CLIMB: Taming the LoRA Residency Cliff in Multi-LoRA Serving",
        "Zhang, Liang, Zuo, Wang",
        "ICML 2026",
        "",
    ),
    claims=(
        "there-is-a-cliff",
        "vip-off-the-cliff",
        "best-for-vip-of-all",
        "engine-stays-quick",
        "nobody-starves",
        "no-unasked-miss",
        "vip-off-the-cliff-over-http",
        "memory-stays",
        "simulates-quickly",
        "linear-in-adapters",
        "two-milliseconds",
        "three-times-litellm",
    ),
    extra="serving",
    modules=("aiohttp", "starlette", "uvicorn", "prometheus_client", "pandas", "yaml"),
    peers_extra="serving-peers",
)
